package messaging_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// connect returns a broker of its own for one process-to-be.
func connect(t *testing.T, server *natstest.Server, name string) *natsbroker.Broker {
	t.Helper()
	broker, err := natsbroker.Connect(t.Context(), natsbroker.Config{URL: server.URL(), Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker
}

// quiet keeps a test that breaks things on purpose from filling the log.
var quiet = slog.New(slog.DiscardHandler)

// startWriter runs one replica of the writer on the real broker.
func startWriter(t *testing.T, pool *pgxpool.Pool, broker *natsbroker.Broker, replica string) (stop func()) {
	t.Helper()
	c := messaging.NewConsumer("writer", pool, broker, messaging.ConsumerConfig{Replica: replica, Lease: 2 * time.Second, Logger: quiet})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	return background(t, c.Run)
}

func ensureWriter(t *testing.T, server *natstest.Server) {
	t.Helper()
	subscription := messaging.Subscription{Durable: "writer", Kinds: []messaging.Kind{changed{}.Kind()}}
	err := natsbroker.EnsureTopology(t.Context(), server.URL(), natsbroker.Topology{AckWait: 2 * time.Second, Subscriptions: []messaging.Subscription{subscription}})
	if err != nil {
		t.Fatal(err)
	}
}

// The whole path, on a real database and a real broker, while everything that
// can be taken away is: the broker restarts, connections are cut, replicas of
// the consumer and relays come and go. In the end each event has had its one
// effect. (Order between versions is not asked of this consumer: it takes what
// a dead replica held when the broker delivers it again.)
func TestTheWholePathLosesAndRepeatsNothingWhileEverythingBreaks(t *testing.T) {
	t.Parallel()
	const events, aggregates = 4000, 100
	pool := newEffects(t)
	server := natstest.New(t)
	ensureWriter(t, server)
	stopRelay := startRelay(t, separatePool(t, pool), connect(t, server, "relay-1"), messaging.RelayConfig{Name: "r1", Lease: 2 * time.Second, Logger: quiet})
	startRelay(t, separatePool(t, pool), connect(t, server, "relay-2"), messaging.RelayConfig{Name: "r2", Lease: 2 * time.Second, Logger: quiet})
	stopFirst := startWriter(t, separatePool(t, pool), connect(t, server, "writer"), "one")
	startWriter(t, separatePool(t, pool), connect(t, server, "writer"), "two")

	reached := func(n int) {
		t.Helper()
		eventually(t, 60*time.Second, func() string { return fmt.Sprintf("fewer than %d effects", n) },
			func() bool { return count(t, pool, sqlCountEffects) >= n })
	}
	var staging sync.WaitGroup
	staging.Go(func() { stageMany(t, pool, events, aggregates) })
	reached(200)
	server.Restart(t)
	reached(800)
	cutConnections(t, pool)
	stopFirst()
	reached(1500)
	stopRelay()
	server.Restart(t)
	cutConnections(t, pool)
	staging.Wait()
	reached(events)

	if got := count(t, pool, `SELECT count(*) FROM (SELECT DISTINCT aggregate, n FROM effect) e`); got != events {
		t.Errorf("got %d different effects, want %d", got, events)
	}
	if got := count(t, pool, sqlCountEffects); got != events {
		t.Errorf("got %d effects, want %d", got, events)
	}
	awaitCount(t, pool, events, sqlCountPublished)
	if got := count(t, pool, `SELECT count(*) FROM message_failure`); got != 0 {
		t.Errorf("got %d failures from outages, want 0", got)
	}
}

// cutConnections ends every session of the database but the one that asks and
// those in the middle of staging.
func cutConnections(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	count(t, pool, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND query NOT LIKE '%message_outbox (event_id%'`)
}

// Of three replicas one works; when it goes, another takes over within a moment.
func TestOneReplicaIsActiveAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	server := natstest.New(t)
	ensureWriter(t, server)
	startRelay(t, separatePool(t, pool), connect(t, server, "relay"), messaging.RelayConfig{Logger: quiet})
	stops := map[string]func(){}
	for _, replica := range []string{"one", "two", "three"} {
		stops[replica] = startWriter(t, separatePool(t, pool), connect(t, server, "writer"), replica)
	}
	active := func() (replica string) {
		eventually(t, 10*time.Second, func() string { return "no replica is active" }, func() bool {
			err := pool.QueryRow(t.Context(), `SELECT owner FROM consumer_lease WHERE lease_until > clock_timestamp()`).Scan(&replica)
			return err == nil
		})
		return replica
	}
	stageMany(t, pool, 500, 20)
	awaitCount(t, pool, 500, sqlCountEffects)
	first := active()
	stops[first]()
	started := time.Now()
	stageMany(t, pool, 1, 1)
	awaitCount(t, pool, 501, sqlCountEffects)
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("took %v, want a clean take-over within moments", took)
	}
	if second := active(); second == first {
		t.Errorf("got %s as the active replica after it stopped", second)
	}
}
