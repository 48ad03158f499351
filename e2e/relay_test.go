package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/demo"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

// stepped is an event of something that goes through several versions.
type stepped struct {
	Step int `json:"step"`
}

func (stepped) Kind() messaging.Kind {
	return messaging.Kind{Context: "order", Type: "OrderStepped", Version: 1, Aggregate: "order"}
}

// C28: what a dead relay leaves behind is the leases of its shards, 64 rows at
// most, however many events wait in them.
func TestThreeRelaysLoseAndReverseNothingWhenOneIsKilled(t *testing.T) {
	t.Parallel()
	const aggregates, versions = 4000, 5
	pool, broker := pgtest.New(t, "messaging"), natstest.New(t)
	ensureTopology(t, broker.URL())
	var relays []*child
	for n := range 3 {
		relays = append(relays, startRelay(t, n+1, "order", pool.Config().ConnString(), broker.URL()))
	}
	for _, relay := range relays {
		relay.awaitReady(t)
	}
	eventually(t, 30*time.Second, "the three share the 64 shards", func() bool {
		return count(t, pool, `SELECT count(*) FROM (SELECT owner FROM relay_lease WHERE lease_until > now() GROUP BY owner HAVING count(*) >= 20) o`) == 3
	})

	staged := stage(t, pool, aggregates, versions)
	eventually(t, 2*time.Minute, "a part is published", func() bool { return pending(t, pool) <= len(staged)*3/4 })
	relays[1].kill()
	if pending(t, pool) == 0 {
		t.Fatal("the relay was killed too late to be in the middle")
	}
	eventually(t, 3*time.Minute, "the others publish the rest", func() bool { return pending(t, pool) == 0 })

	audit := requireOnStream(t, broker.URL(), staged)
	if audit.Copies != 0 { // allowed in general; here the broker's window covers the whole test
		t.Errorf("%d messages are copies of an event that was there", audit.Copies)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_publication`); got != len(staged) {
		t.Errorf("%d events have evidence, want %d", got, len(staged))
	}
	t.Logf("%d events, %d sent again and recognised by the broker", len(staged),
		count(t, pool, `SELECT count(*) FROM message_outbox_publication WHERE duplicate`))
}

// C32: orders are placed, paid and refunded while the broker is away. When it is
// back, three relays publish what has gathered, each order's events in order.
func TestABacklogIsPublishedInTheOrderInWhichItGathered(t *testing.T) {
	t.Parallel()
	pool, broker := pgtest.New(t, "messaging"), startNATS(t)
	ensureTopology(t, broker.url())
	broker.kill(t)
	staged := stage(t, pool, 3000, 3)
	for n := range 3 {
		startRelay(t, n+1, "order", pool.Config().ConnString(), broker.url())
	}
	broker.start(t)
	eventually(t, 2*time.Minute, "the queue is empty", func() bool { return pending(t, pool) == 0 })
	requireOnStream(t, broker.url(), staged)
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_held`); got != 0 {
		t.Errorf("%d events are put aside because the broker was away, want none", got)
	}
}

// C24: the same of a process, stopped again and again in the middle of its work.
func TestARelayThatIsAskedToStopLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	pool, broker := pgtest.New(t, "messaging"), natstest.New(t)
	ensureTopology(t, broker.URL())
	staged := stage(t, pool, 3000, 2)

	stops, left := 0, len(staged)
	for ; left > 0 && stops < 20; stops++ {
		relay := start(t, fmt.Sprintf("relay-%d", stops+1), "relay", "RELAY_DATABASES=order="+pool.Config().ConnString(),
			"NATS_URL="+broker.URL(), "RELAY_BATCH=100")
		eventually(t, 30*time.Second, "it publishes", func() bool { return pending(t, pool) < left })
		if err := relay.terminate(t, 10*time.Second); err != nil {
			t.Fatalf("it ended with %v, want exit code 0", err)
		}
		left = pending(t, pool)
		requireNothingHalfDone(t, pool, len(staged)-left)
	}
	if stops < 3 {
		t.Errorf("everything was published before stop %d: none came in the middle", stops+1)
	}
	startRelay(t, 0, "order", pool.Config().ConnString(), broker.URL())
	eventually(t, 30*time.Second, "a last relay publishes the rest", func() bool { return pending(t, pool) == 0 })

	audit := requireOnStream(t, broker.URL(), staged)
	if audit.Copies != 0 || count(t, pool, `SELECT count(*) FROM message_outbox_publication WHERE duplicate`) != 0 {
		t.Error("an event was sent twice: a batch was given up although there was time to finish it")
	}
}

// requireNothingHalfDone fails the test unless a stopped relay has left its
// shards free, its unpublished events without a count against them, and
// evidence for exactly those that are off the queue.
func requireNothingHalfDone(t *testing.T, pool *pgxpool.Pool, published int) {
	t.Helper()
	if got := count(t, pool, `SELECT count(*) FROM relay_lease WHERE lease_until > now()`); got != 0 {
		t.Errorf("%d shards are still leased by a relay that is gone", got)
	}
	if got := count(t, pool, `SELECT (SELECT count(*) FROM message_outbox_pending WHERE attempts > 0) + (SELECT count(*) FROM message_outbox_held)`); got != 0 {
		t.Errorf("the stop counted as a failed attempt of %d events", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_publication`); got != published {
		t.Errorf("%d events have evidence, want %d", got, published)
	}
}

// stage commits versions events of each aggregate at once and returns their
// ids.
func stage(t *testing.T, pool *pgxpool.Pool, aggregates, versions int) []uuid.UUID {
	t.Helper()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []uuid.UUID
	err = postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		for version := 1; version <= versions; version++ {
			drafts := make([]messaging.Draft, aggregates)
			for i := range drafts {
				drafts[i] = messaging.New(fmt.Sprintf("aggregate-%d", i), int64(version), stepped{version})
				ids = append(ids, drafts[i].ID())
			}
			for part := range slices.Chunk(drafts, 1000) { // no statement that a busy machine could time out
				if err := outbox.Add(t.Context(), tx, part...); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// requireOnStream reads the whole stream and fails the test unless it holds
// exactly these events, each aggregate's in order.
func requireOnStream(t *testing.T, url string, ids []uuid.UUID) *demo.StreamAudit {
	t.Helper()
	audit := requireStored(t, url, ids)
	if len(audit.Inversions) > 0 {
		t.Errorf("%d inversions, the first: %s", len(audit.Inversions), audit.Inversions[0])
	}
	return audit
}

// requireStored reads the whole stream and fails the test unless it holds
// exactly these events, in whatever order.
func requireStored(t *testing.T, url string, ids []uuid.UUID) *demo.StreamAudit {
	t.Helper()
	audit, err := demo.AuditStream(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, id := range ids {
		if !audit.Has(id) {
			lost++
		}
	}
	if lost > 0 || audit.Distinct() != len(ids) {
		t.Errorf("%d events are lost; the stream holds %d, want %d", lost, audit.Distinct(), len(ids))
	}
	return audit
}

func ensureTopology(t *testing.T, url string, subscriptions ...messaging.Subscription) {
	t.Helper()
	if err := natsbroker.EnsureTopology(t.Context(), url, natsbroker.Topology{Subscriptions: subscriptions}); err != nil {
		t.Fatal(err)
	}
}

func pending(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return count(t, pool, `SELECT count(*) FROM message_outbox_pending`)
}

func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := pool.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}
