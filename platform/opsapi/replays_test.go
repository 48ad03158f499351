package opsapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

func fromFailures(reason string) opsapi.ReplayRequest {
	return opsapi.ReplayRequest{Consumer: "writer", From: opsapi.Selection{Source: "failures", Code: "broken"}, PerSecond: 200, Reason: reason}
}

// C27: five hundred dead letters are replayed, and it stops at two hundred.
// Each is replayed once or still open, and the audit shows both.
func TestABulkReplayThatStopsInTheMiddleAccountsForEach(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	b.letters(t, 500)
	c := b.client(t, alice)
	plan, err := c.CreateReplay(t.Context(), fromFailures("mended"))
	if err != nil || plan.Items != 500 || plan.Expected["apply"] != 500 {
		t.Fatalf("got %+v, %v", plan, err)
	}
	if _, err := c.MoveReplay(t.Context(), plan.ReplayID, "start", "now"); err != nil {
		t.Fatal(err)
	}
	stop := b.run(t)
	eventually(t, "some are replayed", func() bool { return b.count(t, `SELECT count(*) FROM effect`) >= 100 })
	stop() // as a crash does: whatever was under way is repeated
	if _, err := c.MoveReplay(t.Context(), plan.ReplayID, "stop", "customers wait"); err != nil {
		t.Fatal(err)
	}
	applied, open := b.count(t, `SELECT count(*) FROM effect`), b.count(t, `SELECT count(*) FROM message_failure WHERE state = 'open'`)
	if applied+open != 500 || open == 0 {
		t.Errorf("%d applied and %d open, want 500 in all and some open", applied, open)
	}
	if _, err := c.MoveReplay(t.Context(), plan.ReplayID, "start", "they have gone"); err != nil {
		t.Fatal(err)
	}
	b.run(t)
	eventually(t, "it is done", func() bool {
		replay, err := c.Replay(t.Context(), plan.ReplayID)
		return err == nil && replay.State == "done"
	})
	if got := b.count(t, `SELECT count(DISTINCT aggregate) FROM effect`); got != 500 || b.count(t, `SELECT count(*) FROM effect`) != 500 {
		t.Errorf("got %d effects, want 500, each once", got)
	}
	if got := b.count(t, `SELECT count(*) FROM message_failure WHERE state = 'resolved'`); got != 500 {
		t.Errorf("got %d dead letters closed, want 500", got)
	}
	if got := b.count(t, `SELECT count(*) FROM operator_action WHERE target = 'replay ' || $1`, plan.ReplayID.String()); got != 4 {
		t.Errorf("got %d actions, want create, start, stop and start", got)
	}
}

// C55: three restarts after a replay run nothing again.
func TestAReplayThatIsDoneStaysDone(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	b.letters(t, 3)
	c := b.client(t, alice)
	plan, err := c.CreateReplay(t.Context(), fromFailures("mended"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.MoveReplay(t.Context(), plan.ReplayID, "start", "now"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		stop := b.run(t)
		eventually(t, "it is done", func() bool {
			replay, err := c.Replay(t.Context(), plan.ReplayID)
			return err == nil && replay.State == "done" && replay.EndedAt != nil && replay.RequestedBy == "alice"
		})
		stop()
	}
	if got := b.count(t, `SELECT count(*) FROM effect`); got != 3 {
		t.Errorf("got %d effects, want 3", got)
	}
	if _, err := c.MoveReplay(t.Context(), plan.ReplayID, "start", "again"); !hasCode(err, "replay_state") {
		t.Errorf("got %v, want replay_state", err)
	}
}

// C48: what the inbox has forgotten would look new.
func TestAReplayOfWhatTheInboxHasForgottenIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	b.letters(t, 1)
	if _, err := b.pool.Exec(t.Context(), `UPDATE message_horizon SET inbox_since = now() + interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	for what, ask := range map[string]func() error{
		"plan":   func() error { _, err := b.client(t, alice).PlanReplay(t.Context(), fromFailures("")); return err },
		"create": func() error { _, err := b.client(t, alice).CreateReplay(t.Context(), fromFailures("old")); return err },
	} {
		if err := ask(); !hasCode(err, "too_old") {
			t.Errorf("%s: got %v, want too_old", what, err)
		}
	}
}

func TestALargeReplayNeedsSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{ReplayApproval: 2})
	b.letters(t, 3)
	mine, err := b.client(t, bob).CreateReplay(t.Context(), fromFailures("mine"))
	if err != nil || !mine.NeedsApproval {
		t.Fatalf("got %+v, %v", mine, err)
	}
	if _, err := b.client(t, bob).MoveReplay(t.Context(), mine.ReplayID, "approve", "mine"); !hasCode(err, "own_approval") {
		t.Errorf("got %v, want own_approval", err)
	}
	if _, err := b.client(t, bob).MoveReplay(t.Context(), mine.ReplayID, "refuse", "not after all"); err != nil {
		t.Error(err)
	}
	hers, err := b.client(t, alice).CreateReplay(t.Context(), fromFailures("hers"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client(t, alice).MoveReplay(t.Context(), hers.ReplayID, "start", "now"); !hasCode(err, "replay_state") {
		t.Errorf("got %v without approval, want replay_state", err)
	}
	if _, err := b.client(t, alice).MoveReplay(t.Context(), hers.ReplayID, "approve", "hers"); !hasCode(err, "forbidden") {
		t.Errorf("got %v, want forbidden: an operator is no approver", err)
	}
	if replay, err := b.client(t, bob).MoveReplay(t.Context(), hers.ReplayID, "approve", "looked at the plan"); err != nil || *replay.ApprovedBy != "bob" {
		t.Errorf("got %+v, %v", replay, err)
	}
	if _, err := b.client(t, alice).MoveReplay(t.Context(), hers.ReplayID, "start", "now"); err != nil {
		t.Error(err)
	}
}

// A peer fills gaps and replays from the owner's outbox; its token opens
// nothing else.
func TestAPeerReadsEventsAndNothingElse(t *testing.T) {
	t.Parallel()
	owner := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	owner.stage(t, messaging.New("a", 1, changed{N: 1}), messaging.New("a", 2, changed{N: 2}), messaging.New("a", 3, changed{N: 3}), messaging.New("b", 1, changed{N: 1}))
	events, complete, err := owner.client(t, peer).Between(t.Context(), "thing", "a", 1, 3)
	if err != nil || len(events) != 1 || !complete {
		t.Fatalf("got %d events, complete %v, %v, want version 2", len(events), complete, err)
	}
	consumer := newBench(t, opsapi.Config{Flags: opsapi.Flags{OpsPeers: map[string]string{"test": owner.url}, OpsPeerToken: peer}}, messaging.ConsumerConfig{})
	for what, from := range map[string]opsapi.Selection{
		"aggregate": {Source: "outbox", AggregateID: "a"},
		"time":      {Source: "outbox", Since: time.Now().Add(-time.Hour), Kind: "ThingChanged.v1"},
	} {
		plan, err := consumer.client(t, alice).PlanReplay(t.Context(), opsapi.ReplayRequest{Consumer: "writer", From: from})
		if err != nil || plan.Expected["apply"] < 3 {
			t.Errorf("by %s: got %+v, %v", what, plan, err)
		}
	}
	if _, err := owner.client(t, peer).DeadLetters(t.Context(), opsapi.FailureFilter{}); !hasCode(err, "forbidden") {
		t.Errorf("got %v, want forbidden", err)
	}
}

func TestEventsAreRepublishedAndReleasedByName(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	ids := b.stage(t, messaging.New("a", 1, changed{N: 1}), messaging.New("b", 1, changed{N: 1}))
	if _, err := b.pool.Exec(t.Context(), `DELETE FROM message_outbox_pending`); err != nil {
		t.Fatal(err)
	}
	c := b.client(t, alice)
	invariants, err := c.Invariants(t.Context(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, inv := range invariants { // too young to be called orphans
		if inv.Name == opsapi.InvariantNoOrphans && !inv.Holds {
			t.Errorf("got %+v", inv)
		}
	}
	changed, err := c.Republish(t.Context(), append(ids, uuid.New()), "lost")
	if err != nil || changed.Changed != 2 {
		t.Errorf("got %+v, %v, want 2 queued", changed, err)
	}
	backlog, err := c.Backlog(t.Context())
	if err != nil || backlog.Pending != 2 {
		t.Errorf("got %+v, %v", backlog, err)
	}
	if changed, err = c.Release(t.Context(), ids, "nothing is held"); err != nil || changed.Changed != 0 {
		t.Errorf("got %+v, %v", changed, err)
	}
	found, err := c.OutboxLookup(t.Context(), opsapi.OutboxLookup{EventIDs: append(ids, uuid.New()), Versions: []opsapi.EventRef{
		{AggregateID: "a", AggregateVersion: 1}, {AggregateID: "a", AggregateVersion: 2}}})
	if err != nil || len(found.EventIDs) != 2 || len(found.Versions) != 1 {
		t.Errorf("got %+v, %v", found, err)
	}
}

// A ticket is asked for once per dead letter, and again only while nobody has
// answered.
func TestADeadLetterOpensOneTicket(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	var title string
	system := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var ticket opsapi.Ticket
		if err := json.NewDecoder(r.Body).Decode(&ticket); err != nil {
			t.Error(err)
		}
		key := r.Header.Get("Idempotency-Key")
		title = ticket.Title
		if asked[key]++; asked[key] == 1 {
			w.WriteHeader(http.StatusBadGateway) // the first time, it has a bad moment
		}
	}))
	defer system.Close()
	b := newBench(t, opsapi.Config{Flags: opsapi.Flags{TicketURL: process.Secret(system.URL)}}, messaging.ConsumerConfig{})
	b.letters(t, 3)
	for range 2 { // two replicas
		go func() {
			if err := b.api.Run(t.Context()); err != nil && !errors.Is(err, t.Context().Err()) {
				t.Error(err)
			}
		}()
	}
	eventually(t, "each has failed once", func() bool { return b.count(t, `SELECT count(*) FROM message_ticket WHERE attempts = 1`) == 3 })
	if _, err := b.pool.Exec(t.Context(), `UPDATE message_ticket SET next_attempt_at = now()`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each has a ticket", func() bool { return b.count(t, `SELECT count(*) FROM message_ticket WHERE state = 'opened'`) == 3 })
	mu.Lock()
	defer mu.Unlock()
	for key, n := range asked {
		if n != 2 {
			t.Errorf("%s was asked for %d times, want twice", key, n)
		}
	}
	if len(asked) != 3 || title != "writer cannot apply ThingChanged: broken" {
		t.Errorf("got %d keys and the title %q", len(asked), title)
	}
}
