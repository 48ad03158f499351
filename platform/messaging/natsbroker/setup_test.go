package natsbroker_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

var (
	orderPaid = messaging.Kind{Context: "order", Type: "OrderPaid", Version: 1, Aggregate: "order"}
	awarder   = messaging.Subscription{Durable: "points-awarder", Kinds: []messaging.Kind{orderPaid}}
)

// patience bounds what should happen at once, on a machine that is busy.
const patience = 30 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// ensure makes a topology with the awarder's durable.
func ensure(t *testing.T, s *natstest.Server, topology natsbroker.Topology) {
	t.Helper()
	if topology.Subscriptions == nil {
		topology.Subscriptions = []messaging.Subscription{awarder}
	}
	if err := natsbroker.EnsureTopology(within(t), s.URL(), topology); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, url string, cfg natsbroker.Config) *natsbroker.Broker {
	t.Helper()
	cfg.URL = url
	cfg.Name = "test"
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	b, err := natsbroker.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// admin returns a plain connection, for what the product never does.
func admin(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func messages(count, keys int) []messaging.Message {
	list := make([]messaging.Message, count)
	for i := range list {
		key := fmt.Sprintf("order/%d", i%keys)
		list[i] = messaging.Message{ID: uuid.Must(uuid.NewV7()), Key: key,
			Subject: orderPaid.Subject(messaging.ShardOf(key)), Data: fmt.Appendf(nil, `{"number": %d}`, i)}
	}
	return list
}

// publishAll publishes the same messages until all are stored, as a relay
// does. It may run beside the test's goroutine.
func publishAll(t *testing.T, b *natsbroker.Broker, list []messaging.Message) []messaging.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		receipts := b.Publish(ctx, list)
		err := firstError(receipts)
		if err == nil {
			return receipts
		}
		select {
		case <-ctx.Done():
			t.Errorf("not stored in time: %v", err)
			return receipts
		case <-time.After(5 * time.Millisecond): // the relay's pace is slower still
		}
	}
}

func firstError(receipts []messaging.Receipt) error {
	for _, r := range receipts {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func awaitReady(t *testing.T, b *natsbroker.Broker) {
	t.Helper()
	poll(t, "the broker is ready", func() bool { return b.Ready(t.Context()) == nil })
}

// poll waits for a condition that nothing signals.
func poll(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

// fetchAll fetches and acknowledges until it has seen count sequences, and
// returns how often each came.
func fetchAll(t *testing.T, source messaging.Source, count int) map[uint64]int {
	t.Helper()
	ctx := within(t)
	seen := map[uint64]int{}
	for len(seen) < count {
		group, err := source.Fetch(ctx, 1000)
		if ctx.Err() != nil {
			t.Fatalf("got %d of %d messages; last error: %v", len(seen), count, err)
		}
		for _, d := range group { // any error is temporary
			seen[d.Sequence()]++
			_ = d.Ack() // may be lost with the connection; then it comes again
		}
	}
	return seen
}
