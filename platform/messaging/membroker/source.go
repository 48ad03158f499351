package membroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"orderpaid/platform/messaging"
)

// durable is the position of one subscription, shared by all that bind it.
type durable struct {
	sub        messaging.Subscription
	position   int // how much of the log has been delivered or skipped
	unanswered map[uint64]*attempt
	answered   map[uint64]bool // acknowledged
	forced     []uint64        // what DeliverNext asked for
	deleted    bool
}

// An attempt is a delivery that waits for its answer.
type attempt struct {
	number int
	due    time.Time // when it comes again
}

type source struct {
	b      *Broker
	d      *durable
	closed bool
}

var errClosed = errors.New("the subscription is closed")

// Fetch implements [messaging.Source].
func (s *source) Fetch(ctx context.Context, max int) ([]messaging.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		group, changed, next, err := s.take(max)
		if len(group) > 0 || err != nil {
			return group, err
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take returns what is due. With nothing due it returns what to wait for: a
// change, or the time until a delivery is due again.
func (s *source) take(max int) (group []messaging.Delivery, changed chan struct{}, next time.Duration, err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	switch {
	case s.closed:
		return nil, nil, 0, errClosed
	case s.d.deleted:
		return nil, nil, 0, fmt.Errorf("durable %s: %w", s.d.sub.Durable, messaging.ErrSubscriptionGone)
	}
	now := time.Now()
	sequences, next := s.d.due(s.b.log, now, max)
	for _, sequence := range sequences {
		a := s.d.unanswered[sequence]
		if a == nil {
			a = &attempt{}
			s.d.unanswered[sequence] = a
		}
		a.number++
		a.due = now.Add(s.b.AckWait)
		group = append(group, &delivery{b: s.b, d: s.d, record: s.b.log[sequence-1], sequence: sequence, attempt: a.number})
	}
	return group, s.b.changed, next, nil
}

// due chooses up to max sequences, in stream order: those whose time has come
// again, then new ones.
func (d *durable) due(log []record, now time.Time, max int) (sequences []uint64, next time.Duration) {
	if len(d.forced) > 0 {
		sequences, d.forced = d.forced[:1:1], d.forced[1:]
		return sequences, 0
	}
	next = time.Hour
	for sequence, a := range d.unanswered {
		if wait := a.due.Sub(now); wait <= 0 {
			sequences = append(sequences, sequence)
		} else {
			next = min(next, wait)
		}
	}
	slices.Sort(sequences)
	sequences = sequences[:min(max, len(sequences))]
	for ; d.position < len(log) && len(sequences) < max; d.position++ {
		sequence := uint64(d.position + 1)
		early := d.answered[sequence] || d.unanswered[sequence] != nil // DeliverNext was faster
		if !early && d.wants(log[d.position].message.Subject) {
			sequences = append(sequences, sequence)
		}
	}
	slices.Sort(sequences)
	return sequences, next
}

func (d *durable) wants(subject string) bool {
	return slices.ContainsFunc(d.sub.Kinds, func(kind messaging.Kind) bool {
		shard, found := strings.CutPrefix(subject, strings.TrimSuffix(kind.Filter(), "*"))
		return found && !strings.Contains(shard, ".")
	})
}

// Close implements [messaging.Source]. What was fetched can still be answered.
func (s *source) Close() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.closed = true
	s.b.announce()
}

type delivery struct {
	b        *Broker
	d        *durable
	record   record
	sequence uint64
	attempt  int
	answered bool
}

func (m *delivery) Data() []byte              { return m.record.message.Data }
func (m *delivery) Subject() string           { return m.record.message.Subject }
func (m *delivery) Header(name string) string { return strings.Join(m.Headers()[name], "") }
func (m *delivery) Stream() string            { return Stream }
func (m *delivery) Sequence() uint64          { return m.sequence }
func (m *delivery) Attempt() int              { return m.attempt }
func (m *delivery) StoredAt() time.Time       { return m.record.at }

func (m *delivery) Headers() map[string][]string {
	if !m.record.message.Traced() {
		return nil
	}
	return map[string][]string{"traceparent": {m.record.message.TraceParent}}
}

func (m *delivery) Ack() error {
	return m.answer(func() {
		delete(m.d.unanswered, m.sequence)
		m.d.answered[m.sequence] = true
	})
}

func (m *delivery) Retry(after time.Duration) error {
	return m.answer(func() { m.comesAgain(after) })
}

func (m *delivery) InProgress() error {
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	m.comesAgain(m.b.AckWait)
	return nil
}

func (m *delivery) comesAgain(after time.Duration) {
	if a := m.d.unanswered[m.sequence]; a != nil {
		a.due = time.Now().Add(after)
		m.b.announce()
	}
}

var errAnswered = errors.New("the message was answered before")

func (m *delivery) answer(act func()) error {
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	if m.answered {
		return errAnswered
	}
	m.answered = true
	act()
	return nil
}
