// Package membroker keeps events in memory, for examples and for unit tests of
// what publishes and what consumes. It keeps the whole contract of
// [messaging.Publisher] and [messaging.Subscriber], proven by the suite that
// natsbroker passes too, and it fails on demand: see [Broker.OnPublish] and
// [Broker.DeliverNext].
//
// Nothing is stored and nothing crosses a process; what depends on NATS itself
// is tested with a real server (see natstest).
package membroker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
)

// Stream is the name that receipts and deliveries carry.
const Stream = "MEMORY"

// A Fault is what happens to one message on its way to the broker.
type Fault int

const (
	None        Fault = iota
	Unavailable       // not stored: ErrUnavailable
	Refused           // not stored: ErrRefused
	RequestLost       // not stored, and the publisher cannot know: ErrUnknownOutcome
	AnswerLost        // stored, and the publisher cannot know: ErrUnknownOutcome
)

// A Broker is a stream with durable subscriptions. Safe for concurrent use.
type Broker struct {
	// AckWait is how long a delivery may go unanswered before it comes again.
	// Set it before the first Subscribe. Defaults to 15 s.
	AckWait time.Duration

	mu       sync.Mutex
	log      []record // the record with sequence n is at n-1
	ids      map[uuid.UUID]uint64
	durables map[string]*durable
	fault    func(messaging.Message) Fault
	changed  chan struct{} // closed and replaced when there may be something to fetch
}

type record struct {
	message messaging.Message
	at      time.Time
}

var (
	_ messaging.Publisher  = (*Broker)(nil)
	_ messaging.Subscriber = (*Broker)(nil)
)

// New returns an empty broker with one durable for each subscription.
func New(subscriptions ...messaging.Subscription) *Broker {
	b := &Broker{
		AckWait:  15 * time.Second,
		ids:      map[uuid.UUID]uint64{},
		durables: map[string]*durable{},
		fault:    func(messaging.Message) Fault { return None },
		changed:  make(chan struct{}),
	}
	for _, sub := range subscriptions {
		b.durables[sub.Durable] = &durable{sub: sub, unanswered: map[uint64]*attempt{}, answered: map[uint64]bool{}}
	}
	return b
}

// OnPublish sets what decides the fate of each message that could be stored.
// fault is called with the broker locked.
func (b *Broker) OnPublish(fault func(messaging.Message) Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = fault
}

// Publish implements [messaging.Publisher].
func (b *Broker) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	b.mu.Lock()
	defer b.mu.Unlock()
	receipts := make([]messaging.Receipt, len(messages))
	stopped := map[string]bool{}
	for i, m := range messages {
		switch {
		case stopped[m.Key]:
			receipts[i].Err = messaging.ErrBehind
		case ctx.Err() != nil:
			receipts[i].Err = fmt.Errorf("%w: not sent: %w", messaging.ErrUnavailable, ctx.Err())
		default:
			receipts[i] = b.publish(m)
		}
		stopped[m.Key] = receipts[i].Err != nil
	}
	return receipts
}

func (b *Broker) publish(m messaging.Message) messaging.Receipt {
	if err := m.Check(); err != nil {
		return messaging.Receipt{Err: err}
	}
	fault := b.fault(m)
	switch fault {
	case Unavailable:
		return messaging.Receipt{Err: messaging.ErrUnavailable}
	case Refused:
		return messaging.Receipt{Err: messaging.ErrRefused}
	case RequestLost:
		return messaging.Receipt{Err: messaging.ErrUnknownOutcome}
	}
	sequence, duplicate := b.ids[m.ID]
	if !duplicate {
		m.Data = slices.Clone(m.Data)
		b.log = append(b.log, record{message: m, at: time.Now()})
		sequence = uint64(len(b.log))
		b.ids[m.ID] = sequence
		b.announce()
	}
	if fault == AnswerLost {
		return messaging.Receipt{Err: messaging.ErrUnknownOutcome}
	}
	return messaging.Receipt{Stream: Stream, Sequence: sequence, Duplicate: duplicate}
}

// Stored returns the messages of the stream in its order.
func (b *Broker) Stored() []messaging.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages := make([]messaging.Message, len(b.log))
	for i, r := range b.log {
		messages[i] = r.message
	}
	return messages
}

// Subscribe implements [messaging.Subscriber].
func (b *Broker) Subscribe(ctx context.Context, sub messaging.Subscription) (messaging.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.durables[sub.Durable]
	if d == nil {
		return nil, fmt.Errorf("bind durable %s: %w", sub.Durable, messaging.ErrSubscriptionGone)
	}
	if have, want := filters(d.sub), filters(sub); !slices.Equal(have, want) {
		return nil, fmt.Errorf("bind durable %s: it delivers %s, not %s", sub.Durable, strings.Join(have, ", "), strings.Join(want, ", "))
	}
	return &source{b: b, d: d}, nil
}

func filters(sub messaging.Subscription) []string {
	patterns := make([]string, len(sub.Kinds))
	for i, kind := range sub.Kinds {
		patterns[i] = kind.Filter()
	}
	slices.Sort(patterns)
	return slices.Compact(patterns)
}

// Delete removes a durable, as an administrator could.
func (b *Broker) Delete(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.durables[name]; d != nil {
		d.deleted = true
		delete(b.durables, name)
		b.announce()
	}
}

// DeliverNext makes a durable deliver these messages next, in this order and
// each in a group of its own, whether or not they were delivered or
// acknowledged before: a lost acknowledgement, a duplicate, an overtaking.
func (b *Broker) DeliverNext(durable string, sequences ...uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.durables[durable]
	d.forced = append(d.forced, sequences...)
	b.announce()
}

// announce wakes every Fetch that waits. The caller holds the lock.
func (b *Broker) announce() {
	close(b.changed)
	b.changed = make(chan struct{})
}
