package natsbroker_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

func subscribe(t *testing.T, b *natsbroker.Broker) messaging.Source {
	t.Helper()
	source, err := b.Subscribe(within(t), awarder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return source
}

func TestDeliveryGoesOnAfterServerRestarts(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{AckWait: 2 * time.Second})
	b := connect(t, s.URL(), natsbroker.Config{})
	source := subscribe(t, b)
	const rounds, size = 3, 500
	for round := range rounds {
		publishAll(t, b, messages(size, 9))
		var restart sync.WaitGroup
		fetched := make(chan struct{})
		restart.Go(func() {
			defer close(fetched)
			fetchAll(t, source, size)
		})
		s.Restart(t)
		restart.Wait()
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// The client reconnects while nobody fetches; there is no call that could
// notice it.
func TestDeliveryGoesOnAfterAReconnectThatNobodySaw(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{PullExpiry: time.Minute}) // the pulse would be too late
	source := subscribe(t, b)
	for range 3 {
		s.Restart(t)
		awaitReady(t, b)
	}
	publishAll(t, b, messages(10, 2))
	fetchAll(t, source, 10)
}

// C29: nothing falls asleep for good because there was nothing to do.
func TestOneMessageAfterALongSilenceComesAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	const expiry = 400 * time.Millisecond
	b := connect(t, s.URL(), natsbroker.Config{PullExpiry: expiry})
	source := subscribe(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 6*expiry) // requests expire, heartbeats come, the durable is looked at
	defer cancel()
	for ctx.Err() == nil { // a busy machine may miss heartbeats: that is temporary
		if group, _ := source.Fetch(ctx, 1); len(group) > 0 {
			t.Fatalf("got sequence %d during the silence", group[0].Sequence())
		}
	}
	begin := time.Now()
	publishAll(t, b, messages(1, 1))
	fetchAll(t, source, 1)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v, want the usual few milliseconds", took)
	}
}

// C18: messages that wait behind a slow handler are not late: nobody has them twice.
func TestMessagesThatWaitForASlowHandlerDoNotComeTwice(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	const ackWait = time.Second
	const queued, slow = 20, ackWait / 4 // the last one waits for five times the ackWait
	ensure(t, s, natsbroker.Topology{AckWait: ackWait})
	var mu sync.Mutex
	attempts := map[uint64]int{}
	done := make(chan struct{})
	var replicas sync.WaitGroup
	first := connect(t, s.URL(), natsbroker.Config{})
	sources := []messaging.Source{subscribe(t, first), subscribe(t, connect(t, s.URL(), natsbroker.Config{}))}
	publishAll(t, first, messages(queued, queued))
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	for _, source := range sources {
		replicas.Go(func() {
			for {
				group, err := source.Fetch(ctx, 1)
				if err != nil {
					return
				}
				<-time.After(slow) // the handler's work
				if err := group[0].Ack(); err != nil {
					t.Error(err)
				}
				mu.Lock()
				attempts[group[0].Sequence()] += group[0].Attempt()
				if len(attempts) == queued {
					close(done)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	cancel()
	replicas.Wait()
	for sequence, n := range attempts {
		if n != 1 {
			t.Errorf("sequence %d came more than once", sequence)
		}
	}
	if got := len(attempts); got != queued {
		t.Errorf("%d of %d messages came", got, queued)
	}
}

func TestPrefetchIsExact(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	const prefetch = 40
	b := connect(t, s.URL(), natsbroker.Config{Prefetch: prefetch})
	publishAll(t, b, messages(500, 50))
	source := subscribe(t, b)
	consumer, err := admin(t, s.URL()).Consumer(within(t), natsbroker.DefaultStream, awarder.Durable)
	if err != nil {
		t.Fatal(err)
	}
	waiting := func() int {
		info, err := consumer.Info(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return info.NumAckPending
	}
	poll(t, "the buffer is full", func() bool { return waiting() == prefetch })
	take := func(count int) { // in one group, unless some are on their way from the server still
		for got := 0; got < count; {
			group, err := source.Fetch(within(t), count-got)
			if err != nil {
				t.Fatal(err)
			}
			got += len(group)
		}
	}
	take(15)
	if got := waiting(); got != prefetch {
		t.Errorf("%d messages are in flight, want %d: less than half of the room is free", got, prefetch)
	}
	take(15)
	poll(t, "the room is filled again", func() bool { return waiting() == prefetch+30 })
	fetchAll(t, source, 500-30)
}

func TestADurableThatWasMadeAgainIsNotTheSame(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	publishAll(t, b, messages(60, 6))
	source := subscribe(t, b)
	fetchAll(t, source, 10)
	if err := admin(t, s.URL()).DeleteConsumer(within(t), natsbroker.DefaultStream, awarder.Durable); err != nil {
		t.Fatal(err)
	}
	ensure(t, s, natsbroker.Topology{}) // before the source has looked
	ctx := within(t)
	var err error
	for err == nil || !errors.Is(err, messaging.ErrSubscriptionGone) && ctx.Err() == nil {
		_, err = source.Fetch(ctx, 1)
	}
	if !errors.Is(err, messaging.ErrSubscriptionGone) {
		t.Fatalf("got %v, want %v", err, messaging.ErrSubscriptionGone)
	}
	source.Close()
	fetchAll(t, subscribe(t, b), 60) // from the beginning, nothing skipped: the inbox absorbs the rest
}

func TestADurableOfAnotherKindOfLifeIsNotBound(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*jetstream.ConsumerConfig){
		"gives up":         func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 },
		"backs off":        func(c *jetstream.ConsumerConfig) { c.MaxDeliver, c.BackOff = 5, []time.Duration{time.Second} },
		"acknowledges all": func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy },
		"headers only":     func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true },
		"small window":     func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 100 },
		"everything":       func(c *jetstream.ConsumerConfig) { c.FilterSubject = "" },
	}
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	js := admin(t, s.URL())
	b := connect(t, s.URL(), natsbroker.Config{})
	for name, spoil := range tests {
		config := jetstream.ConsumerConfig{Durable: "other", FilterSubject: orderPaid.Filter(),
			AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, MaxAckPending: 5000}
		spoil(&config)
		if _, err := js.CreateConsumer(within(t), natsbroker.DefaultStream, config); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err := b.Subscribe(within(t), messaging.Subscription{Durable: "other", Kinds: awarder.Kinds})
		if err == nil || errors.Is(err, messaging.ErrUnavailable) || errors.Is(err, messaging.ErrSubscriptionGone) {
			t.Errorf("%s: got %v, want what is wrong with it", name, err)
		}
		if err := js.DeleteConsumer(within(t), natsbroker.DefaultStream, "other"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLargeEventsAreBoundedByTheirBytes(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	const count, bound = 160, 32 << 20 / messaging.MaxEventBytes
	list := messages(count, count)
	for i := range list {
		list[i].Data = bytes.Repeat([]byte("x"), messaging.MaxEventBytes)
	}
	publishAll(t, b, list)
	source := subscribe(t, b)
	consumer, err := admin(t, s.URL()).Consumer(within(t), natsbroker.DefaultStream, awarder.Durable)
	if err != nil {
		t.Fatal(err)
	}
	var flying int
	poll(t, "the buffer is full", func() bool {
		info, err := consumer.Info(within(t))
		if err != nil {
			t.Error(err)
			return true
		}
		before := flying
		flying = info.NumAckPending
		return flying > bound/2 && flying == before
	})
	if flying > bound {
		t.Errorf("%d events of %d bytes are in flight, want at most %d", flying, messaging.MaxEventBytes, bound)
	}
	fetchAll(t, source, count)
}
