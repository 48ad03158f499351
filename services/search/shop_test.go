package search

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// patience bounds what should happen at once, on a machine that is busy.
const patience = 60 * time.Second

// A shop is a fixture with a real stream.
type shop struct {
	fixture
	server *natstest.Server
	broker *natsbroker.Broker
}

func newShop(t *testing.T) shop {
	t.Helper()
	server := natstest.New(t)
	if err := natsbroker.EnsureTopology(t.Context(), server.URL(), natsbroker.Topology{Subscriptions: Subscriptions()}); err != nil {
		t.Fatal(err)
	}
	broker, err := natsbroker.Connect(t.Context(), natsbroker.Config{URL: server.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return shop{newFixture(t), server, broker}
}

// publish puts events on the stream, as the relay does.
func (s shop) publish(t *testing.T, events ...[]byte) {
	t.Helper()
	messages := make([]messaging.Message, len(events))
	for i, event := range events {
		var env messaging.Envelope
		if err := json.Unmarshal(event, &env); err != nil {
			t.Fatal(err)
		}
		messages[i] = messaging.Message{ID: env.EventID, Key: env.AggregateID, Data: event,
			Subject: kind(env.EventType).Subject(messaging.ShardOf(env.AggregateID))}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, r := range s.broker.Publish(ctx, messages) {
		if r.Err != nil {
			t.Error(r.Err) // not Fatal: this may run beside the test's goroutine
		}
	}
}

// follow runs the live consumer until the test ends.
func (s shop) follow(t *testing.T) {
	t.Helper()
	consumer := messaging.NewConsumer(indexer, s.pool, s.broker, messaging.ConsumerConfig{})
	s.service.register(consumer)
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := consumer.Run(ctx); err != nil {
			t.Errorf("consume: %v", err)
		}
	})
	t.Cleanup(func() { stop(); done.Wait() })
}

func (s shop) rebuild(t *testing.T) *Rebuild {
	t.Helper()
	r := NewRebuild(s.pool, s.broker)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

// await polls until the versions of all documents in the live slot add up to
// versions: one for each event that was applied.
func (s shop) await(t *testing.T, versions int64) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var got int64
		err := s.pool.QueryRow(t.Context(), `
			SELECT coalesce(sum(version), 0)::bigint FROM order_document WHERE slot = (SELECT live_slot FROM search_index)`).Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
		if got == versions {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the index holds %d versions, want %d", got, versions)
		case <-tick.C:
		}
	}
}

// documents returns everything that the live slot holds, a line an order.
func (s shop) documents(t *testing.T) []string {
	t.Helper()
	rows, _ := s.pool.Query(t.Context(), `
		SELECT (to_jsonb(d) - 'slot')::text FROM order_document d WHERE slot = (SELECT live_slot FROM search_index) ORDER BY order_id`)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// life returns the events of one order, up to the given version.
func life(t *testing.T, order string, versions int) [][]byte {
	t.Helper()
	return [][]byte{created(t, order, "u1", "登山背包 "+order, "🎁礼物盒"), paid(t, order, 2), refunded(t, order, 3, 100), refunded(t, order, 4, 300)}[:versions]
}

// requireClean fails the test if a rebuild has left something behind.
func (s shop) requireClean(t *testing.T) {
	t.Helper()
	if got := s.count(t, `
		SELECT (SELECT count(*) FROM order_document WHERE slot <> (SELECT live_slot FROM search_index))
		     + (SELECT count(*) FROM message_inbox WHERE consumer = $1)
		     + (SELECT count(*) FROM message_progress WHERE consumer = $1)
		     + (SELECT count(*) FROM message_failure WHERE consumer = $1 AND resolved_at IS NULL)`, rebuilder); got != 0 {
		t.Errorf("%d rows of the rebuild are left", got)
	}
}
