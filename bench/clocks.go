package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"orderpaid/platform/messaging"
)

// A clock notes when things happened, by key.
type clock struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newClock() *clock { return &clock{at: map[string]time.Time{}} }

// note keeps the first time.
func (c *clock) note(key string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.at[key]; !again {
		c.at[key] = now
	}
}

func (c *clock) has(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.at) >= n
}

// until returns how long it took from each time in from to the same key here.
// A negative time is zero: the two were noted by different goroutines.
func (c *clock) until(from *clock) ([]time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := make([]time.Duration, 0, len(from.at))
	for key, began := range from.at {
		ended, ok := c.at[key]
		if !ok {
			return nil, fmt.Errorf("%w: %s was committed and has not arrived", errCheated, key)
		}
		took = append(took, max(0, ended.Sub(began)))
	}
	return took, nil
}

// ackClock is a publisher that notes when the broker has acknowledged which
// aggregate, and at which position.
type ackClock struct {
	messaging.Publisher
	acked *clock // the first event of each aggregate

	mu     sync.Mutex
	keys   map[uint64]string // by position
	events map[uuid.UUID]time.Time
}

func newAckClock(pub messaging.Publisher) *ackClock {
	return &ackClock{Publisher: pub, acked: newClock(), keys: map[uint64]string{}, events: map[uuid.UUID]time.Time{}}
}

func (a *ackClock) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	receipts := a.Publisher.Publish(ctx, messages)
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range receipts {
		if r.Err == nil {
			a.acked.note(messages[i].Key)
			a.keys[r.Sequence] = messages[i].Key
			a.events[messages[i].ID] = now
		}
	}
	return receipts
}

// byKey turns times by position into times by aggregate.
func (a *ackClock) byKey(positions *clock) *clock {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := newClock()
	positions.mu.Lock()
	defer positions.mu.Unlock()
	for position, key := range a.keys {
		if at, ok := positions.at[strconv.FormatUint(position, 10)]; ok {
			out.at[key] = at
		}
	}
	return out
}

// awarder is the durable of the points service.
const awarder = "points-awarder"

// onEffect calls done with the position of each message that a durable's
// consumer acknowledges, which it does right after the commit. The
// acknowledgement is a message like any other, so it can be listened to.
func (b *broker) onEffect(durable string, done func(position uint64)) (stop func(), err error) {
	sub, err := b.nc.Subscribe("$JS.ACK.>", func(m *nats.Msg) {
		tokens := strings.Split(m.Subject, ".")
		// $JS.ACK.<stream>.<durable>.<deliveries>.<position>.…, and since
		// version 2 of the subject a domain and an account in front of these.
		at := 2
		if len(tokens) > 9 {
			at = 4
		}
		if len(tokens) < at+4 || tokens[at+1] != durable {
			return
		}
		if position, err := strconv.ParseUint(tokens[at+3], 10, 64); err == nil && string(m.Data) == "+ACK" {
			done(position)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen for acknowledgements: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, b.nc.Flush()
}
