package natsbroker_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

func TestTopologyIsMadeOnceAndThenLeftAlone(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	topology := natsbroker.Topology{Subscriptions: []messaging.Subscription{awarder}}
	if got, want := planned(t, s, topology), []string{"stream EVENTS is missing", "durable points-awarder is missing"}; !cmp.Equal(got, want) {
		t.Errorf("plan for an empty server: %s", cmp.Diff(want, got))
	}
	if _, err := admin(t, s.URL()).Stream(within(t), natsbroker.DefaultStream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Fatalf("the plan made the stream: %v", err)
	}
	var owners sync.WaitGroup
	for range 3 { // several at once, as when two people deploy
		owners.Go(func() {
			if err := natsbroker.EnsureTopology(within(t), s.URL(), topology); err != nil {
				t.Error(err)
			}
		})
	}
	owners.Wait()
	if got := planned(t, s, topology); len(got) > 0 {
		t.Errorf("plan after it was made: %v", got)
	}
	s.Restart(t)
	ensure(t, s, topology)
}

// C75: nobody throws away what consumers have still to read, not by mistake and
// not with the rights of the owner.
func TestWhatIsOnTheStreamCannotBePurged(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	source := subscribe(t, b)
	publishAll(t, b, messages(3, 3))
	stream, err := admin(t, s.URL()).Stream(within(t), natsbroker.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(within(t)); err == nil {
		t.Error("the stream was purged")
	}
	if err := stream.Purge(within(t), jetstream.WithPurgeSubject("shop.events.>")); err == nil {
		t.Error("a subject was purged")
	}
	if err := stream.DeleteMsg(within(t), 1); err == nil {
		t.Error("a message was deleted")
	}
	fetchAll(t, source, 3)
}

func planned(t *testing.T, s *natstest.Server, topology natsbroker.Topology) []string {
	t.Helper()
	changes, err := natsbroker.PlanTopology(within(t), s.URL(), topology)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	return lines
}

// C38: an older program that starts after a newer one, with the durable's
// settings of its own time, changes nothing and says what differs.
func TestDriftIsAnErrorThatListsTheFieldsAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	updateStream(t, s, func(c *jetstream.StreamConfig) { // by hand, behind the owner's back
		c.AllowDirect = false
		c.Subjects = append(c.Subjects, "shop.other.>")
		c.Metadata = map[string]string{"team": "red"}
	})
	refunded := messaging.Kind{Context: "order", Type: "OrderRefunded", Version: 1, Aggregate: "order"}
	wider := messaging.Subscription{Durable: awarder.Durable, Kinds: []messaging.Kind{orderPaid, refunded}}
	newcomer := messaging.Subscription{Durable: "newcomer", Kinds: awarder.Kinds}
	topology := natsbroker.Topology{Subscriptions: []messaging.Subscription{wider, newcomer}, AckWait: time.Minute, MaxAge: time.Hour}
	want := []string{
		`stream EVENTS: allow_direct is not set, should be true`,
		`stream EVENTS: max_age is 168h0m0s, should be 1h0m0s`,
		`stream EVENTS: metadata is {"team":"red"}, should be not set`,
		`stream EVENTS: subjects is ["shop.events.>","shop.other.>"], should be ["shop.events.>"]`,
		`durable points-awarder: ack_wait is 15s, should be 1m0s`,
		`durable points-awarder: filter_subjects is ["shop.events.order.OrderPaid.v1.*"], should be ["shop.events.order.OrderPaid.v1.*","shop.events.order.OrderRefunded.v1.*"]`,
		`durable newcomer is missing`,
	}
	if got := planned(t, s, topology); !cmp.Equal(got, want) {
		t.Errorf("plan: %s", cmp.Diff(want, got))
	}
	for _, update := range []bool{false, true} { // subjects are not changed even then
		topology.Update = update
		err := natsbroker.EnsureTopology(within(t), s.URL(), topology)
		if !errors.Is(err, natsbroker.ErrDrift) || !strings.Contains(err.Error(), "subjects is") {
			t.Errorf("update %t: got %v, want %v and the fields", update, err, natsbroker.ErrDrift)
		}
		if got := planned(t, s, topology); !cmp.Equal(got, want) {
			t.Errorf("update %t: a part was changed: %s", update, cmp.Diff(want, got))
		}
	}
}

func TestAnUpdateKeepsThePosition(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	publishAll(t, b, messages(10, 2))
	source := subscribe(t, b)
	fetchAll(t, source, 10)
	if err := b.Ready(within(t)); err != nil { // the acknowledgements have arrived
		t.Fatal(err)
	}
	ensure(t, s, natsbroker.Topology{AckWait: time.Minute, MaxAckPending: 3000, MaxBytes: 1 << 30, Update: true})
	later := publishAll(t, b, messages(1, 1))[0]
	for sequence := range fetchAll(t, source, 1) {
		if sequence != later.Sequence {
			t.Errorf("got sequence %d, want %d: the position was lost", sequence, later.Sequence)
		}
	}
}

func TestATopologyThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	tests := map[string]natsbroker.Topology{
		"the same durable twice": {Subscriptions: []messaging.Subscription{awarder, awarder}},
		"no kinds":               {Subscriptions: []messaging.Subscription{{Durable: "all"}}},
		"a dot in a name":        {Subscriptions: []messaging.Subscription{{Durable: "a.b", Kinds: awarder.Kinds}}},
		"negative limits":        {MaxAge: -time.Second},
		"too many replicas":      {Replicas: 3}, // of a single server
	}
	for name, topology := range tests {
		if err := natsbroker.EnsureTopology(within(t), s.URL(), topology); err == nil {
			t.Errorf("%s: made", name)
		}
	}
}

// A small disk is what a person meets first, and the server says of it only that
// resources are insufficient.
func TestAStreamForWhichThereIsNoRoomSaysHowMuchItNeeds(t *testing.T) {
	t.Parallel()
	s := natstest.New(t, func(o *server.Options) { o.JetStreamMaxStore = 1 << 30 })
	err := natsbroker.EnsureTopology(within(t), s.URL(), natsbroker.Topology{})
	if err == nil || !strings.Contains(err.Error(), "4096 MiB") || !strings.Contains(err.Error(), "max_file_store") {
		t.Errorf("got %v, want what the stream needs and where the limit comes from", err)
	}
}
