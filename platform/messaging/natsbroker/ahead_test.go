package natsbroker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// C101: a durable has sequences behind it that the stream has still to give.
// One server puts its durables back when it starts, so the state is made here
// by moving the durable instead of shortening the stream; what follows is the
// same.
func TestADurableThatIsAheadOfTheStreamIsSeenAndCanBeMadeAnew(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	publishAll(t, b, messages(3, 3))
	fetchAll(t, subscribe(t, b), 3)
	poll(t, "all is acknowledged", func() bool { return durable(t, b).AckFloor == 3 })
	if got := durable(t, b).Ahead; got != 0 {
		t.Errorf("a durable that has read everything is ahead by %d", got)
	}
	s.MoveDurable(t, natsbroker.DefaultStream, awarder.Durable, 101)
	publishAll(t, b, messages(2, 2))
	if got := durable(t, b); got.Ahead != 95 || got.Pending != 0 || got.InFlight != 0 {
		t.Errorf("got %+v, want it ahead by 95, and nothing pending: the server skips what is new", got)
	}
	topology := natsbroker.Topology{Subscriptions: []messaging.Subscription{awarder}, Update: true}
	if got, want := planned(t, s, topology), "durable points-awarder: delivered is 100, should be at most 5"; !slices.Equal(got, []string{want}) {
		t.Errorf("got the plan %q, want %q", got, want)
	}
	if err := natsbroker.EnsureTopology(within(t), s.URL(), topology); !errors.Is(err, natsbroker.ErrDrift) {
		t.Errorf("got %v without being told to make it anew, want %v", err, natsbroker.ErrDrift)
	}
	topology.Anew = []string{awarder.Durable}
	if err := natsbroker.EnsureTopology(within(t), s.URL(), topology); err != nil {
		t.Fatal(err)
	}
	if got := durable(t, b); got.Ahead != 0 || got.Pending != 5 {
		t.Errorf("got %+v after it was made anew, want 5 pending", got)
	}
	fetchAll(t, subscribe(t, b), 5)
}

// A slip must not have a healthy durable read a week of events again.
func TestOnlyADurableThatIsAheadIsMadeAnew(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	for name, want := range map[string]string{awarder.Durable: "is not ahead of the stream", "awarder": `"awarder" is none of this topology`} {
		err := natsbroker.EnsureTopology(within(t), s.URL(), natsbroker.Topology{Subscriptions: []messaging.Subscription{awarder}, Anew: []string{name}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

func durable(t *testing.T, b *natsbroker.Broker) natsbroker.DurableStatus {
	t.Helper()
	status, err := b.Status(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(status.Consumers) != 1 {
		t.Fatalf("got %d durables, want 1", len(status.Consumers))
	}
	return status.Consumers[0]
}
