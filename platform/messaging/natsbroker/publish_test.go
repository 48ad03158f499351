package natsbroker_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// Sizes of a call that goes message by message, and of one that goes as a batch.
var both = []int{1, 20}

func TestMoreThanABatchIsStoredInOrderWithItsSequences(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	for i, r := range b.Publish(within(t), messages(2500, 100)) {
		if r.Err != nil || r.Sequence != uint64(i+1) || r.Duplicate || r.Stream != natsbroker.DefaultStream {
			t.Fatalf("message %d: got %+v, want sequence %d", i, r, i+1)
		}
	}
}

// C81: what waited while the broker was away goes out when it is back, and nobody
// restarts anything.
func TestServerRestartsDuringPublishLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]natsbroker.Config{"batches": {}, "single": {Single: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			publishOverRestarts(t, cfg)
		})
	}
}

func publishOverRestarts(t *testing.T, cfg natsbroker.Config) {
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	cfg.AttemptTimeout = 2 * time.Second
	b := connect(t, s.URL(), cfg)
	const rounds, size = 30, 100
	restart := make(chan struct{})
	var publisher sync.WaitGroup
	publisher.Go(func() {
		defer close(restart)
		last := map[string]uint64{}
		for round := range rounds {
			if round%10 == 5 {
				restart <- struct{}{}
			}
			list := messages(size, 7)
			for i, r := range publishAll(t, b, list) {
				if r.Sequence <= last[list[i].Key] {
					t.Errorf("round %d: %s went back from %d to %d", round, list[i].Key, last[list[i].Key], r.Sequence)
				}
				last[list[i].Key] = r.Sequence
			}
		}
	})
	for range restart {
		s.Restart(t)
	}
	publisher.Wait()
	requireStored(t, s, rounds*size)
}

// requireStored checks that the stream holds so many messages, each id once.
func requireStored(t *testing.T, s *natstest.Server, want int) {
	t.Helper()
	ctx := within(t)
	consumer, err := admin(t, s.URL()).OrderedConsumer(ctx, natsbroker.DefaultStream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	total := int(consumer.CachedInfo().NumPending)
	stored, err := consumer.Messages() // ahead of us, and not one at a time
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Stop()
	for range total {
		m, err := stored.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		ids[m.Headers().Get(nats.MsgIdHdr)]++
	}
	if total != want || len(ids) != want {
		t.Errorf("%d messages with %d ids are stored, want %d", total, len(ids), want)
	}
}

func TestASwallowedAnswerIsAskedForAgainUnderTheSameIDs(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	p := newProxy(t, s)
	b := connect(t, p.url(), natsbroker.Config{AttemptTimeout: 2 * time.Second})
	p.set(swallow)
	for i, r := range b.Publish(within(t), messages(700, 3)) { // many of a key
		if r.Err != nil || r.Sequence != uint64(i+1) || !r.Duplicate {
			t.Fatalf("message %d: got %+v, want a duplicate at %d", i, r, i+1)
		}
	}
	p.set(swallow)
	lost := b.Publish(within(t), messages(1, 1))[0]
	if !errors.Is(lost.Err, messaging.ErrUnknownOutcome) {
		t.Errorf("one message without an answer: %v, want %v", lost.Err, messaging.ErrUnknownOutcome)
	}
	requireStored(t, s, 701)
}

// No more than the window are on their way at once, and all of them arrive.
func TestMoreThanTheWindowIsPublishedOneByOne(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{Single: true})
	taken := map[uint64]bool{}
	for i, r := range b.Publish(within(t), messages(1200, 1200)) {
		if r.Err != nil || r.Duplicate || taken[r.Sequence] {
			t.Fatalf("message %d: got %+v, want a place of its own", i, r)
		}
		taken[r.Sequence] = true
	}
	requireStored(t, s, 1200)
}

// The server has a message, and its answer is lost: as long as nobody knows
// that, nothing of the same key may be sent.
func TestNothingIsSentBehindAMessageWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	p := newProxy(t, s)
	b := connect(t, p.url(), natsbroker.Config{Single: true, AttemptTimeout: 300 * time.Millisecond})
	list := messages(6, 1)
	p.set(swallow)
	for i, r := range b.Publish(within(t), list) {
		want := messaging.ErrUnknownOutcome
		if i > 0 {
			want = messaging.ErrBehind
		}
		if !errors.Is(r.Err, want) {
			t.Errorf("message %d: %v, want %v", i, r.Err, want)
		}
	}
	requireStored(t, s, 1)
	patient := connect(t, s.URL(), natsbroker.Config{Single: true})
	for i, r := range publishAll(t, patient, list) {
		if r.Sequence != uint64(i+1) || r.Duplicate != (i == 0) {
			t.Errorf("message %d: got %+v, want it at %d, the first one as a duplicate", i, r, i+1)
		}
	}
}

func TestAMuteServerLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	p := newProxy(t, s)
	b := connect(t, p.url(), natsbroker.Config{})
	p.set(mute)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	for i, r := range b.Publish(ctx, messages(20, 3)) {
		if !errors.Is(r.Err, messaging.ErrUnknownOutcome) { // not ErrBehind: the batch carried all of them
			t.Errorf("message %d: %v, want %v", i, r.Err, messaging.ErrUnknownOutcome)
		}
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("it took %v, the deadline was 300ms", took)
	}
}

func TestWithoutAStreamTheBrokerIsUnavailable(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	b := connect(t, s.URL(), natsbroker.Config{})
	for _, count := range both {
		for i, r := range b.Publish(within(t), messages(count, count)) {
			if !errors.Is(r.Err, messaging.ErrUnavailable) {
				t.Errorf("message %d of %d: %v, want %v", i, count, r.Err, messaging.ErrUnavailable)
			}
		}
	}
	if _, err := b.Subscribe(within(t), awarder); !errors.Is(err, messaging.ErrUnavailable) {
		t.Errorf("subscribe: %v, want %v", err, messaging.ErrUnavailable)
	}
	ensure(t, s, natsbroker.Topology{})
	publishAll(t, b, messages(5, 5))
}

// C42: the receipt must be of the stream that was meant.
func TestAnotherStreamsAcknowledgementDoesNotCount(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	js := admin(t, s.URL())
	if _, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"shop.events.>"}}); err != nil {
		t.Fatal(err)
	}
	b := connect(t, s.URL(), natsbroker.Config{})
	for _, count := range both {
		for _, r := range b.Publish(within(t), messages(count, count)) {
			if !errors.Is(r.Err, messaging.ErrUnavailable) {
				t.Errorf("got %+v, want %v", r, messaging.ErrUnavailable)
			}
		}
	}
}

// C42: anybody may listen to a subject and reply. Here there is no stream, and the
// publisher must not take the reply for an acknowledgement.
func TestAnEavesdroppersReplyIsNotAnAcknowledgement(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	replies := []string{"", "thanks", `{}`, `{"stream": "OTHER", "seq": 7}`, `{"stream": "EVENTS", "seq": 0}`, `{"seq": 1}`}
	var reply string
	var mu sync.Mutex
	nc := admin(t, s.URL()).Conn()
	_, err := nc.Subscribe("shop.events.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		_ = m.Respond([]byte(reply)) // a batch has no reply subject but on its last message
	})
	if err = errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	b := connect(t, s.URL(), natsbroker.Config{AttemptTimeout: time.Second})
	for _, text := range replies {
		mu.Lock()
		reply = text
		mu.Unlock()
		for _, count := range both {
			for i, r := range b.Publish(within(t), messages(count, count)) {
				if r.Err == nil {
					t.Errorf("reply %q: message %d of %d counts as stored: %+v", text, i, count, r)
				}
			}
		}
	}
}

// C11: too large is refused for good, and not taken for an outage.
func TestWhatTheServerFindsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		option   natstest.Option
		topology func(*jetstream.StreamConfig)
	}{
		"for a connection": {option: func(o *server.Options) { o.MaxPayload = 32 << 10 }},
		"for the stream":   {topology: func(c *jetstream.StreamConfig) { c.MaxMsgSize = 32 << 10 }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.New(t, func(o *server.Options) {
				if tt.option != nil {
					tt.option(o)
				}
			})
			ensure(t, s, natsbroker.Topology{})
			if tt.topology != nil {
				updateStream(t, s, tt.topology)
			}
			b := connect(t, s.URL(), natsbroker.Config{})
			list := messages(20, 3)
			list[1].Data = bytes.Repeat([]byte("x"), 64<<10)
			for i, r := range b.Publish(within(t), list) {
				var want error
				switch {
				case i == 1:
					want = messaging.ErrRefused
				case i%3 == 1: // of the same key
					want = messaging.ErrBehind
				}
				if !errors.Is(r.Err, want) {
					t.Errorf("message %d: %v, want %v", i, r.Err, want)
				}
			}
			if got := b.Publish(within(t), list[1:2])[0].Err; !errors.Is(got, messaging.ErrRefused) {
				t.Errorf("alone: %v, want %v", got, messaging.ErrRefused)
			}
		})
	}
}

func updateStream(t *testing.T, s *natstest.Server, change func(*jetstream.StreamConfig)) {
	t.Helper()
	js := admin(t, s.URL())
	stream, err := js.Stream(within(t), natsbroker.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	change(&config)
	if _, err := js.UpdateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
}

// C80: what a full stream does not take is not lost, and not at fault.
func TestAFullStreamMakesTheBrokerUnavailable(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{MaxBytes: 64 << 10})
	b := connect(t, s.URL(), natsbroker.Config{})
	for _, count := range []int{20, 1} {
		list := messages(count, count)
		for i := range list {
			list[i].Data = bytes.Repeat([]byte("x"), 60<<10)
		}
		for i, r := range b.Publish(within(t), list) {
			if count > 1 && !errors.Is(r.Err, messaging.ErrUnavailable) {
				t.Errorf("message %d: %v, want %v", i, r.Err, messaging.ErrUnavailable)
			}
		}
	}
	full := messages(1, 1)
	full[0].Data = bytes.Repeat([]byte("x"), 60<<10)
	if got := b.Publish(within(t), full)[0].Err; !errors.Is(got, messaging.ErrUnavailable) {
		t.Errorf("alone: %v, want %v", got, messaging.ErrUnavailable)
	}
}

func TestAStreamWithoutAtomicBatchesStillStores(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	updateStream(t, s, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false })
	b := connect(t, s.URL(), natsbroker.Config{})
	for i, r := range b.Publish(within(t), messages(50, 50)) {
		if r.Err != nil || r.Sequence != uint64(i+1) {
			t.Errorf("message %d: got %+v, want sequence %d", i, r, i+1)
		}
	}
}

func TestAPublishThatIsNotPermittedIsUnavailableAndSaysWhy(t *testing.T) {
	t.Parallel()
	s := natstest.New(t, func(o *server.Options) {
		deny := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"shop.events.>"}}}
		o.Users = []*server.User{{Username: "owner", Password: "o"}, {Username: "relay", Password: "r", Permissions: deny}}
	})
	as := func(user string) string { return strings.Replace(s.URL(), "nats://", "nats://"+user+"@", 1) }
	if err := natsbroker.EnsureTopology(within(t), as("owner:o"), natsbroker.Topology{}); err != nil {
		t.Fatal(err)
	}
	b := connect(t, as("relay:r"), natsbroker.Config{AttemptTimeout: 300 * time.Millisecond})
	for _, count := range both {
		for _, r := range b.Publish(within(t), messages(count, count)) {
			if !errors.Is(r.Err, messaging.ErrUnavailable) || !strings.Contains(r.Err.Error(), "ermissions") {
				t.Errorf("got %v, want %v and the reason", r.Err, messaging.ErrUnavailable)
			}
		}
	}
}
