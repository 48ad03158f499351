package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
)

// A source holds the messages of one subscription between the server and
// Fetch.
//
//	server ──► receive ──► ready ──► Fetch      (receive: the client's goroutine)
//	   ▲                     │
//	   └── requests ◄── run ─┘ keeps waiting messages alive, notices stalls
//
// The client library has an iterator for this. It is not used, because what it
// has fetched ahead is out of reach: those messages cannot be kept alive while
// a slow handler works, so they come twice; nor given back at shutdown, so
// they come late. Here every message is in ready, and the number of them is
// exact.
type source struct {
	b       *Broker
	sub     messaging.Subscription
	kinds   kindSet
	ackWait time.Duration
	created time.Time // of the durable: another time means another durable of that name

	arrived chan struct{} // Fetch has something to look at
	room    chan struct{} // run may request more
	trouble chan struct{} // run must look at the durable again
	stop    context.CancelFunc
	stopped chan struct{}

	recovered time.Time     // belongs to run, like pause
	pause     time.Duration // before the next recovery

	mu         sync.Mutex
	inbox      *nats.Subscription
	request    request
	ready      []*delivery
	readyBytes int
	looked     time.Time // when the last message came, or the durable was seen to have none
	starved    bool      // it had some the last time
	remedies   int       // cures tried since the last message
	err        error     // for the next Fetch; temporary
	gone       bool
	closed     bool
}

var errClosed = errors.New("the subscription is closed")

func (b *Broker) open(sub messaging.Subscription, info *jetstream.ConsumerInfo) (*source, error) {
	s := &source{
		b: b, sub: sub, kinds: newKindSet(sub.Kinds), ackWait: info.Config.AckWait, created: info.Created,
		arrived: make(chan struct{}, 1), room: make(chan struct{}, 1), trouble: make(chan struct{}, 1),
		stopped: make(chan struct{}), looked: time.Now(),
	}
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("bind durable %s: %w", sub.Durable, unavailable(err))
	}
	ctx, stop := context.WithCancel(context.Background()) // until Close; Subscribe's ctx bounds the binding only
	s.stop = stop
	b.mu.Lock()
	closing := b.closing
	b.sources[s] = struct{}{}
	b.mu.Unlock()
	go s.run(ctx)
	if closing {
		s.Close()
		return nil, fmt.Errorf("bind durable %s: %w", sub.Durable, errClosed)
	}
	return s, nil
}

// Fetch implements [messaging.Source]. It takes what is there at once: at a
// low rate no message waits for others, and under load a group fills up while
// the last one is being worked on.
func (s *source) Fetch(ctx context.Context, max int) ([]messaging.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		group, err := s.take(max)
		if len(group) > 0 || err != nil {
			return group, err
		}
		select {
		case <-ctx.Done():
		case <-s.arrived:
		}
	}
}

func (s *source) take(max int) ([]messaging.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err := s.err; {
	case s.closed:
		return nil, errClosed
	case s.gone:
		return nil, fmt.Errorf("durable %s: %w", s.sub.Durable, messaging.ErrSubscriptionGone)
	case len(s.ready) == 0:
		s.err = nil
		return nil, err
	}
	// What comes again comes after its successors; here it is put back.
	slices.SortStableFunc(s.ready, func(a, b *delivery) int { return cmp.Compare(a.Sequence(), b.Sequence()) })
	n := min(max, len(s.ready))
	group := make([]messaging.Delivery, n)
	for i, d := range s.ready[:n] {
		group[i] = d
		s.readyBytes -= len(d.msg.Data)
	}
	s.ready = slices.Delete(s.ready, 0, n)
	signal(s.room)
	return group, nil
}

// AckWait is how long the server waits for an answer to a message.
func (s *source) AckWait() time.Duration { return s.ackWait }

// Close implements [messaging.Source]. Messages that wait to be fetched are
// given back, so that the next one to bind has them at once instead of after
// the acknowledgement wait. Messages that were fetched may still be answered.
func (s *source) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	s.stop()
	<-s.stopped
	if !first {
		return
	}
	s.drain()
	s.mu.Lock()
	ready := s.ready
	s.ready, s.readyBytes = nil, 0
	s.mu.Unlock()
	for _, d := range ready {
		_ = d.Retry(0) // if it is lost, the acknowledgement wait does the same, later
	}
	signal(s.arrived)
	s.b.mu.Lock()
	delete(s.b.sources, s)
	s.b.mu.Unlock()
}

// run requests messages and looks after the subscription until Close.
func (s *source) run(ctx context.Context) {
	defer close(s.stopped)
	keepAlive := time.NewTicker(max(s.ackWait/3, time.Millisecond))
	defer keepAlive.Stop()
	pulse := time.NewTicker(s.b.cfg.PullExpiry / 4)
	defer pulse.Stop()
	s.requestMore()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.room:
			s.requestMore()
		case <-s.trouble:
			s.recover(ctx, false)
		case <-keepAlive.C:
			s.keepAlive()
		case <-pulse.C:
			if s.stalled(ctx) {
				s.recover(ctx, true)
			}
		}
	}
}

// keepAlive restarts the acknowledgement wait of the messages that are here
// and have not been fetched: while they wait, nobody is late.
func (s *source) keepAlive() {
	s.mu.Lock()
	waiting := slices.Clone(s.ready)
	s.mu.Unlock()
	for _, d := range waiting {
		if d.InProgress() != nil {
			return // disconnected: they will come again
		}
	}
}

// disturbed makes run look at the durable and request anew.
func (s *source) disturbed() { signal(s.trouble) }

// signal wakes the receiver of a channel of size one, which looks at the state
// when it wakes: a signal that finds another one waiting is not needed.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
