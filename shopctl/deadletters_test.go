package shopctl_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
)

// poison publishes a copy of an order's payment, as another event about another
// order, whose points are a word. It returns that order's id.
func (w *world) poison(t *testing.T, order string) string {
	t.Helper()
	var payload []byte
	if err := w.db["order"].QueryRow(t.Context(), `SELECT payload FROM message_outbox WHERE aggregate_id = $1 AND kind = 'OrderPaid.v1'`, order).Scan(&payload); err != nil {
		t.Fatal(err)
	}
	var envelope map[string]json.RawMessage
	var data map[string]any
	if err := json.Unmarshal(payload, &envelope); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(envelope["data"], &data); err != nil {
		t.Fatal(err)
	}
	id, other := uuid.Must(uuid.NewV7()), "ord_"+strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "")
	data["points_delta"], data["order_id"] = "many", other
	envelope["event_id"], envelope["aggregate_id"] = json.RawMessage(`"`+id.String()+`"`), json.RawMessage(`"`+other+`"`)
	envelope["data"] = encode(t, data)
	kind := messaging.Kind{Context: "order", Type: "OrderPaid", Version: 1}
	receipts := connect(t, w.nats.URL(), "poisoner").Publish(t.Context(), []messaging.Message{{
		ID: id, Key: other, Subject: kind.Subject(messaging.ShardOf(other)), Data: encode(t, envelope)}})
	if receipts[0].Err != nil {
		t.Fatal(receipts[0].Err)
	}
	return other
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// letters waits for as many open dead letters of points and returns their ids.
func (w *world) letters(t *testing.T, n int) (refs []string) {
	t.Helper()
	eventually(t, "there are dead letters", func() bool {
		return w.count(t, "points", `SELECT count(*) FROM message_failure WHERE state = 'open'`) == n
	})
	var list []struct {
		ID string `json:"failure_id"`
	}
	if err := json.Unmarshal([]byte(w.must(t, viewer, "dead-letters list --json --service points")), &list); err != nil || len(list) != n {
		t.Fatalf("got %+v, %v, want %d dead letters", list, err, n)
	}
	for _, d := range list {
		refs = append(refs, "points/"+d.ID)
	}
	return refs
}

func TestADeadLetterIsFoundLookedAtCorrectedAndApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	order := w.pay(t)
	w.awaitIdle(t)
	other := w.poison(t, order)
	ref := w.letters(t, 1)[0]

	requireIn(t, w.must(t, viewer, "dead-letters groups"), "points-awarder", "bad_data", "OrderPaid")
	shown := w.must(t, viewer, "dead-letters show", ref)
	requireIn(t, shown, "bad_data", other, "points_delta", `"(string)"`, "docs/05-operate.md", "the engineer on call")
	if strings.Contains(shown, `"many"`) || strings.Contains(shown, "u_1") {
		t.Errorf("a value of the payload is shown:\n%s", shown)
	}
	if sealed := w.text(t, "points", `SELECT sealed_by FROM message_failure LIMIT 1`); sealed != "first" {
		t.Errorf("the payload is sealed with %q, want the configured key", sealed)
	}
	if _, err := w.as(t, viewer, "dead-letters show --payload", ref, "--reason=curious"); err == nil {
		t.Error("a viewer saw the payload")
	}
	if _, err := w.as(t, alice, "dead-letters show --payload", ref); err == nil {
		t.Error("the payload was shown without a reason")
	}
	event := w.must(t, alice, "dead-letters show --payload", ref, "--reason=correct it")
	requireIn(t, event, `"points_delta": "many"`)

	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, []byte(strings.Replace(event, `"many"`, "7", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	requireIn(t, w.must(t, alice, "dead-letters fix --event "+file, ref, "--reason=seven it is"), "is settled", "will be applied instead")
	eventually(t, "the correction is applied", func() bool {
		return w.count(t, "points", `SELECT points FROM points_entry WHERE order_id = $1`, other) == 7
	})
	if _, err := w.as(t, alice, "dead-letters fix --event "+file, ref, "--reason=again"); err == nil {
		t.Error("a settled dead letter was corrected again")
	}
	shown = w.must(t, viewer, "dead-letters show", ref)
	requireIn(t, shown, "discarded", "corrected", "reveal", "correct it", "fix", "seven it is", "alice")
	requireIn(t, w.must(t, viewer, "why", other), "corrected", "points_entry", "alice")
	if report, _ := w.reconcile(t); len(report.Findings) > 0 && checks(report)[0] != "effect without cause in notify" {
		t.Errorf("a correction is a finding: %+v", report.Findings)
	}
}

// C54: two operators click at once.
func TestGroupsAreRetriedOrGivenUpOnceWhoeverAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	order := w.pay(t)
	w.awaitIdle(t)
	for range 5 {
		w.poison(t, order)
	}
	refs := w.letters(t, 5)
	if _, err := w.as(t, viewer, "dead-letters retry", refs[0], "--reason=no right to"); err == nil {
		t.Error("a viewer could retry")
	}
	if _, err := w.as(t, alice, "dead-letters retry --service points", "--reason=all of it"); err == nil {
		t.Error("a retry of everything was accepted")
	}
	var both sync.WaitGroup
	for _, token := range []string{alice, bob} {
		both.Go(func() {
			if out, err := w.as(t, token, "dead-letters retry --service points --code bad_data", "--reason=let us see"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	both.Wait()
	eventually(t, "they failed again", func() bool {
		return w.count(t, "points", `SELECT count(*) FROM message_failure WHERE state = 'open' AND attempts >= 2`) == 5
	})
	requireIn(t, w.must(t, alice, "dead-letters discard", refs[0], refs[1], "--reason=made up for a test"), "points: 2 discarded")
	requireIn(t, w.must(t, bob, "dead-letters discard --service points --consumer points-awarder", "--reason=the rest too"), "points: 3 discarded")
	if out, err := w.as(t, alice, "dead-letters discard", refs[0], "--reason=twice"); err == nil || !strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("got %q, %v for one that was discarded before, want an error", out, err)
	}
	requireIn(t, w.must(t, viewer, "dead-letters list --state discarded"), refs[0], refs[4])
	if n := w.count(t, "points", `SELECT count(*) FROM message_inbox WHERE result = 'discarded'`); n != 5 {
		t.Errorf("got %d events remembered as discarded, want 5", n)
	}
}
