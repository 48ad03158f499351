package natsbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

var (
	orderRefunded = messaging.Kind{Context: "order", Type: "OrderRefunded", Version: 1, Aggregate: "order"}
	wide          = messaging.Subscription{Durable: "points-awarder", Kinds: []messaging.Kind{orderPaid, orderRefunded}, Wide: true}
)

// everyKind returns messages of what an order goes through; two of four are
// what the wide subscription wants.
func everyKind(orders int) (list []messaging.Message, wanted map[string]bool) {
	wanted = map[string]bool{}
	for n := range orders {
		key := fmt.Sprintf("order/%d", n)
		for _, name := range []string{"OrderCreated", "OrderPaid", "OrderRefunded", "OrderCancelled"} {
			kind := messaging.Kind{Context: "order", Type: name, Version: 1, Aggregate: "order"}
			m := messaging.Message{ID: uuid.Must(uuid.NewV7()), Key: key, Subject: kind.Subject(messaging.ShardOf(key)), Data: []byte(`{}`)}
			list = append(list, m)
			if kind == orderPaid || kind == orderRefunded {
				wanted[m.ID.String()] = true
			}
		}
	}
	return list, wanted
}

func TestAWideSubscriptionGetsItsKindsInOrderAndLeavesNothingOfTheOthers(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{AckWait: 2 * time.Second, Subscriptions: []messaging.Subscription{wide}})
	b := connect(t, s.URL(), natsbroker.Config{Prefetch: 100}) // so that requests end within messages that nobody wants
	source, err := b.Subscribe(within(t), wide)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	list, wanted := everyKind(300)
	publishAll(t, b, list)
	ctx := within(t)
	last := uint64(0)
	for got := 0; got < len(wanted); {
		group, err := source.Fetch(ctx, 50)
		if err != nil {
			t.Fatalf("got %d of %d: %v", got, len(wanted), err)
		}
		for _, d := range group {
			if !wanted[d.Header("Nats-Msg-Id")] {
				t.Errorf("got %s, which it does not want", d.Subject())
			}
			if d.Sequence() <= last {
				t.Errorf("got %d after %d", d.Sequence(), last)
			}
			last = d.Sequence()
			got++
			if err := d.Ack(); err != nil {
				t.Fatal(err)
			}
		}
	}
	poll(t, "nothing is pending and nothing waits for an answer", func() bool {
		consumer, err := admin(t, s.URL()).Consumer(ctx, natsbroker.DefaultStream, wide.Durable)
		return err == nil && consumer.CachedInfo().NumPending == 0 && consumer.CachedInfo().NumAckPending == 0
	})
}

// What nobody wants must not fill the room for requests: then what is wanted
// behind it would never come.
func TestAWantedMessageBehindManyOthersComes(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{Subscriptions: []messaging.Subscription{wide}})
	b := connect(t, s.URL(), natsbroker.Config{Prefetch: 10, PullExpiry: time.Minute})
	source, err := b.Subscribe(within(t), wide)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	created := messaging.Kind{Context: "order", Type: "OrderCreated", Version: 1, Aggregate: "order"}
	list := messages(500, 50)
	for i := range list[:499] {
		list[i].Subject = created.Subject(messaging.ShardOf(list[i].Key))
	}
	sent := publishAll(t, b, list)
	group, err := source.Fetch(within(t), 10)
	if err != nil || len(group) != 1 || group[0].Sequence() != sent[499].Sequence {
		t.Fatalf("got %d messages, %v, want the last one alone", len(group), err)
	}
}

// Services can be replaced before the topology: a process that can do with
// more binds the durable that gives it exactly what it needs. The other way
// round a process would get what it does not expect.
func TestWhoTakesMoreBindsADurableOfItsExactKindsAndNotTheOtherWayRound(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	exact := wide
	exact.Wide = false
	ensure(t, s, natsbroker.Topology{Subscriptions: []messaging.Subscription{exact}})
	b := connect(t, s.URL(), natsbroker.Config{})
	source, err := b.Subscribe(within(t), wide)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := everyKind(5)
	publishAll(t, b, list)
	fetchAll(t, source, 10)
	ensure(t, s, natsbroker.Topology{Subscriptions: []messaging.Subscription{wide}, Update: true})
	list, _ = everyKind(5)
	publishAll(t, b, list)
	fetchAll(t, source, 10) // the same process, with the new topology
	source.Close()
	if _, err := b.Subscribe(within(t), exact); err == nil {
		t.Error("a process that expects its kinds alone has bound a durable that gives it more")
	}
}
