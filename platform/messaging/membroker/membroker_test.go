package membroker_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/brokertest"
	"orderpaid/platform/messaging/membroker"
)

func TestMembrokerKeepsTheContract(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, func(_ *testing.T, setup brokertest.Setup) brokertest.Harness {
		b := membroker.New(setup.Subscriptions...)
		b.AckWait = setup.AckWait
		return brokertest.Harness{
			Publisher: b, Subscriber: b,
			LoseAnswers: func(*testing.T) {
				lost := map[string]bool{} // each key's first answer
				b.OnPublish(func(m messaging.Message) membroker.Fault {
					if lost[m.Key] {
						return membroker.None
					}
					lost[m.Key] = true
					return membroker.AnswerLost
				})
			},
			DeleteDurable: func(_ *testing.T, name string) { b.Delete(name) },
		}
	})
}

var (
	paid    = messaging.Kind{Context: "order", Type: "OrderPaid", Version: 1, Aggregate: "order"}
	awarder = messaging.Subscription{Durable: "points-awarder", Kinds: []messaging.Kind{paid}}
)

func message(key string) messaging.Message {
	return messaging.Message{ID: uuid.Must(uuid.NewV7()), Key: key, Subject: paid.Subject(0), Data: []byte(`{}`)}
}

func TestEachFaultStoresAndAnswersAsItSays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		fault  membroker.Fault
		want   error
		stored int
	}{
		{membroker.None, nil, 1},
		{membroker.Unavailable, messaging.ErrUnavailable, 0},
		{membroker.Refused, messaging.ErrRefused, 0},
		{membroker.RequestLost, messaging.ErrUnknownOutcome, 0},
		{membroker.AnswerLost, messaging.ErrUnknownOutcome, 1},
	}
	for _, tt := range tests {
		b := membroker.New(awarder)
		b.OnPublish(func(messaging.Message) membroker.Fault { return tt.fault })
		got := b.Publish(t.Context(), []messaging.Message{message("a"), message("a")})
		if !errors.Is(got[0].Err, tt.want) {
			t.Errorf("fault %d: %v, want %v", tt.fault, got[0].Err, tt.want)
		}
		if tt.want != nil && !errors.Is(got[1].Err, messaging.ErrBehind) {
			t.Errorf("fault %d: the next of its key: %v, want %v", tt.fault, got[1].Err, messaging.ErrBehind)
		}
		if tt.want != nil && len(b.Stored()) != tt.stored {
			t.Errorf("fault %d: %d messages are stored, want %d", tt.fault, len(b.Stored()), tt.stored)
		}
	}
}

func TestDeliverNextRepeatsAndReorders(t *testing.T) {
	t.Parallel()
	b := membroker.New(awarder)
	for _, r := range b.Publish(t.Context(), []messaging.Message{message("a"), message("a"), message("a")}) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	source, err := b.Subscribe(t.Context(), awarder)
	if err != nil {
		t.Fatal(err)
	}
	b.DeliverNext(awarder.Durable, 3, 1, 1)
	var got []uint64
	for len(got) < 4 {
		group, err := source.Fetch(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range group {
			got = append(got, d.Sequence())
			if err := d.Ack(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []uint64{3, 1, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
