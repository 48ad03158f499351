package natsbroker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// C101: three servers lose what they store together. One alone puts its
// durables back when it starts; these do not, and nothing is pending or fails
// while new messages are skipped.
func TestADurableStaysAheadOfAReplicatedStreamThatLostItsMessagesUntilItIsMadeAnew(t *testing.T) {
	t.Parallel()
	servers := natstest.Cluster(t, 3)
	topology := natsbroker.Topology{Replicas: 3, Subscriptions: []messaging.Subscription{awarder}}
	poll(t, "the servers store a stream together", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return natsbroker.EnsureTopology(ctx, servers[0].URL(), topology) == nil
	})
	b := connect(t, servers[0].URL(), natsbroker.Config{})
	publishAll(t, b, messages(20, 3))
	fetchAll(t, subscribe(t, b), 20)
	poll(t, "all is acknowledged", func() bool { return durable(t, b).AckFloor == 20 })
	natstest.LoseMessages(t, servers...)
	publishAll(t, b, messages(5, 3))
	var got natsbroker.DurableStatus
	poll(t, "the durable has a leader again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		status, err := b.Status(ctx)
		if err != nil || len(status.Consumers) == 0 {
			return false
		}
		got = status.Consumers[0]
		return true
	})
	if got.Ahead != 15 || got.Pending != 0 || got.InFlight != 0 {
		t.Errorf("got %+v, want it ahead by 15, and nothing pending: the server skips what is new", got)
	}
	topology.Anew = []string{awarder.Durable}
	if err := natsbroker.EnsureTopology(within(t), servers[0].URL(), topology); err != nil {
		t.Fatal(err)
	}
	fetchAll(t, subscribe(t, b), 5)
	if got := durable(t, b).Ahead; got != 0 {
		t.Errorf("made anew, it is ahead by %d", got)
	}
}

// The same with a durable that is moved, and with what the plan says.
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
