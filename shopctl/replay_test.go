package shopctl_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// missed makes an order's payment unknown to points: its entry and its inbox
// row are gone, as after a restored backup.
func (w *world) missed(t *testing.T, orders ...string) {
	t.Helper()
	for _, order := range orders {
		w.exec(t, "points", `DELETE FROM points_entry WHERE order_id = $1`, order)
		w.exec(t, "points", `DELETE FROM message_inbox WHERE aggregate_id = $1`, order)
	}
	w.exec(t, "points", `UPDATE points_balance b SET balance = (SELECT coalesce(sum(points), 0) FROM points_entry e WHERE e.user_id = b.user_id)`)
}

func TestAReplayIsPlannedTriedOnACopyMadeAndVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 30)
	missed := w.orders(t, 3)
	w.missed(t, missed...)
	entries := w.count(t, "points", `SELECT count(*) FROM points_entry`)

	requireIn(t, w.must(t, viewer, "replay plan points-awarder --from outbox --since 1h --kind OrderPaid.v1"), "apply 3", "already_applied")
	requireIn(t, w.must(t, viewer, "replay plan points-awarder --from stream --from-sequence 1"), "apply 3", "already_applied")
	requireIn(t, w.must(t, viewer, "replay plan search-indexer --from outbox --order "+missed[0]), "already_applied 2")

	admin := w.db["points"].Config().ConnString()
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/postgres"
	tried := w.must(t, alice, "replay plan points-awarder --from outbox --since 1h --sandbox --sandbox-admin-url="+u.String(),
		"--sandbox-database="+w.db["points"].Config().ConnConfig.Database)
	requireIn(t, tried, "apply 3", "copied by pg_dump", `"without_effect": 0`)
	if got := w.count(t, "points", `SELECT count(*) FROM points_entry`); got != entries {
		t.Errorf("the sandbox changed the database: %d entries, want %d", got, entries)
	}
	if n := w.count(t, "points", `SELECT count(*) FROM pg_database WHERE datname LIKE 'sandbox_%'`); n != 0 {
		t.Errorf("%d copies are left", n)
	}

	if _, err := w.as(t, viewer, "replay create points-awarder --from outbox --since 1h", "--reason=no right to"); err == nil {
		t.Error("a viewer could make a replay")
	}
	requireIn(t, w.must(t, alice, "replay create points-awarder --from outbox --since 1h --dry-run", "--reason=to see"), "apply 3")
	made := w.must(t, alice, "replay create points-awarder --from outbox --since 1h --start --per-second 10000", "--reason=missed in the outage")
	requireIn(t, made, "has begun")
	eventually(t, "it is done", func() bool {
		return w.count(t, "points", `SELECT count(*) FROM message_replay WHERE state = 'done'`) == 1
	})
	if got := w.count(t, "points", `SELECT count(*) FROM points_entry`); got != entries+3 {
		t.Errorf("got %d entries, want %d", got, entries+3)
	}
	ref := "points/" + w.text(t, "points", `SELECT replay_id::text FROM message_replay`)
	requireIn(t, w.must(t, viewer, "replay show", ref), "done", "alice", "missed in the outage", `"without_effect": 0`)
	requireIn(t, w.must(t, viewer, "replay list"), ref)
	requireIn(t, w.must(t, viewer, "why", missed[0]), "points-awarder", strings.TrimPrefix(ref, "points/"))
	if report, clean := w.reconcile(t); !clean {
		t.Errorf("after the replay: %+v", report.Findings)
	}
}

// What leads to a mail needs permission, and a business key keeps it from
// leading to a second one.
func TestAReplayToTheMailServiceSendsNoSecondMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	order := w.pay(t)
	w.awaitIdle(t)
	w.exec(t, "notify", `DELETE FROM message_inbox`) // it has forgotten, and has sent all the same
	requireIn(t, w.must(t, viewer, "replay plan notify-sender --from outbox --order "+order), "external 1", "--allow-external")
	w.must(t, alice, "replay create notify-sender --from outbox --order "+order+" --allow-external --start", "--reason=forgotten")
	eventually(t, "it is done", func() bool {
		return w.count(t, "notify", `SELECT count(*) FROM message_replay WHERE state = 'done'`) == 1
	})
	if got := w.text(t, "notify", `SELECT result FROM message_inbox`); got != "already_planned" {
		t.Errorf("got %q, want the business key to have caught it", got)
	}
	if got := w.count(t, "notify", `SELECT count(*) FROM delivery_task`); got != 1 {
		t.Errorf("got %d mails, want 1", got)
	}
}

func TestALargeReplayIsApprovedBySomebodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 20)
	var plan struct {
		ReplayID string `json:"replay_id"`
	}
	made := w.must(t, alice, "replay create search-indexer --from outbox --since 1h --json", "--reason=a new rule")
	if err := json.Unmarshal([]byte(made), &plan); err != nil {
		t.Fatal(err)
	}
	w.exec(t, "search", `UPDATE message_replay SET state = 'awaiting_approval'`) // as one with more than a thousand events is
	ref := "search/" + plan.ReplayID
	if _, err := w.as(t, alice, "replay start", ref, "--reason=now"); err == nil {
		t.Error("it was started without approval")
	}
	if _, err := w.as(t, alice, "replay approve", ref, "--reason=it is mine"); err == nil {
		t.Error("an operator could approve")
	}
	requireIn(t, w.must(t, bob, "replay approve", ref, "--reason=checked with alice"), "ready", "bob", "shopctl replay start "+ref+" --reason")
	w.must(t, alice, "replay start", ref, "--reason=now")
	eventually(t, "it is done", func() bool {
		return w.count(t, "search", `SELECT count(*) FROM message_replay WHERE state = 'done'`) == 1
	})
	bobs := w.must(t, bob, "replay create search-indexer --from outbox --since 1h --json", "--reason=mine")
	if err := json.Unmarshal([]byte(bobs), &plan); err != nil {
		t.Fatal(err)
	}
	w.exec(t, "search", `UPDATE message_replay SET state = 'awaiting_approval' WHERE state = 'ready'`)
	if out, err := w.as(t, bob, "replay approve", "search/"+plan.ReplayID, "--reason=mine too"); err == nil {
		t.Errorf("bob approved his own replay:\n%s", out)
	}
	requireIn(t, w.must(t, bob, "replay approve --refuse", "search/"+plan.ReplayID, "--reason=not after all"), "refused")
}
