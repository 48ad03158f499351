package messaging_test

import (
	"testing"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgtest"
)

func TestTheOwnerAnswersForTheVersionsOfAnAggregate(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stage(t, pool, messaging.New("a", 1, changed{N: 1}), messaging.New("a", 2, changed{N: 2}), messaging.New("a", 4, changed{N: 4}))
	history := messaging.NewHistory(pool)
	cases := []struct {
		after, before int64
		events        int
		complete      bool
	}{{0, 2, 1, true}, {0, 4, 2, true}, {2, 4, 0, true}, {0, 5, 3, false}, {4, 6, 0, false}}
	for _, c := range cases {
		events, complete, err := history.Between(t.Context(), "thing", "a", c.after, c.before)
		if err != nil || len(events) != c.events || complete != c.complete {
			t.Errorf("between %d and %d: got %d events, complete %v, %v, want %d, %v", c.after, c.before, len(events), complete, err, c.events, c.complete)
		}
	}
}

// A page of a thousand asks for one more, to know whether there is another.
func TestThereIsAlwaysOneMoreThanThePageToAskFor(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 1100, 10)
	page, err := messaging.NewHistory(pool).StagedPage(t.Context(), messaging.StagedFilter{Limit: 1001})
	if err != nil || len(page) != 1001 {
		t.Errorf("got %d events, %v, want 1001", len(page), err)
	}
	if _, err := messaging.NewHistory(pool).Actions(t.Context(), 1<<40, 10); err != nil {
		t.Errorf("actions before id 2^40: %v", err)
	}
}

func TestTheHistoryTellsWhereEachEventIs(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	stageMany(t, pool, 30, 3)
	history := messaging.NewHistory(pool)
	backlog, err := history.Backlog(t.Context())
	if err != nil || backlog.Pending != 30 || backlog.OldestPending <= 0 || backlog.HottestCount < 10 {
		t.Fatalf("got %+v, %v", backlog, err)
	}
	startRelay(t, pool, newRecorder(), messaging.RelayConfig{Name: "r1"})
	awaitCount(t, pool, 30, sqlCountPublished)
	staged, err := history.Staged(t.Context(), "thing-1")
	if err != nil || len(staged) != 10 || staged[0].State != "published" || *staged[0].PublishedBy != "r1" {
		t.Fatalf("got %d, %v", len(staged), err)
	}
	payloads, err := history.Payloads(t.Context(), []uuid.UUID{staged[0].EventID, staged[1].EventID})
	if err != nil || len(payloads) != 2 {
		t.Fatalf("got %d payloads, %v", len(payloads), err)
	}
	messagingtest.Deliver(t, newWriter(t, pool, "writer"), payloads...)
	seen, err := history.Seen(t.Context(), nil, staged[0].EventID)
	if err != nil || len(seen) != 1 || seen[0].Consumer != "writer" || seen[0].Result != "applied" {
		t.Errorf("got %+v, %v", seen, err)
	}
	page, err := history.StagedPage(t.Context(), messaging.StagedFilter{Kind: "ThingChanged.v1", Limit: 20})
	if err != nil || len(page) != 20 {
		t.Fatalf("got %d, %v", len(page), err)
	}
	rest, err := history.StagedPage(t.Context(), messaging.StagedFilter{Limit: 20, Before: page[19].EventID})
	if err != nil || len(rest) != 10 {
		t.Errorf("got %d on the second page, %v, want 10", len(rest), err)
	}
}

// The broker has forgotten what it acknowledged: the same events go out again,
// under the same ids.
func TestRepublishedEventsKeepTheirIdsAndGetNewEvidence(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 5, 1)
	stop := startRelay(t, pool, newRecorder(), messaging.RelayConfig{Name: "before"})
	awaitCount(t, pool, 5, sqlCountPublished)
	stop()
	staged, err := messaging.NewHistory(pool).Staged(t.Context(), "thing-0")
	if err != nil {
		t.Fatal(err)
	}
	lost := []uuid.UUID{staged[1].EventID, staged[3].EventID}
	for _, want := range []int{2, 0} { // asked twice, queued once
		queued, err := messaging.NewHistory(pool).Republish(t.Context(), lost, mei)
		if err != nil || queued != want {
			t.Fatalf("got %d, %v, want %d", queued, err, want)
		}
	}
	broker := newRecorder()
	startRelay(t, pool, broker, messaging.RelayConfig{Name: "after"})
	awaitCount(t, pool, 2, `SELECT count(*) FROM message_outbox_publication WHERE relay = 'after'`)
	got := broker.messages()
	if len(got) != 2 || got[0].ID != lost[0] || got[1].ID != lost[1] {
		t.Errorf("got %d messages", len(got))
	}
	if got := count(t, pool, `SELECT count(*) FROM operator_action WHERE action = 'republish' AND actor = 'mei'`); got != 1 {
		t.Errorf("got %d recorded actions, want 1", got)
	}
}
