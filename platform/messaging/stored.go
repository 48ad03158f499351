package messaging

import (
	"context"
	"errors"
	"slices"
	"time"
)

// storedFailure is a row of message_failure that is being tried again.
type storedFailure struct {
	FailureID      int64
	Payload        []byte
	SealedBy       *string
	Stream         string
	StreamSeq      int64
	Subject        string
	BudgetAttempts int
	BudgetSpent    time.Duration
}

// storedDelivery is an event that comes from message_failure, from a replay or
// from another service's outbox: the broker has no part in it. What is handed
// back does not come again by itself, so whoever brought it must look.
type storedDelivery struct {
	from       *storedFailure
	data       []byte
	replay     string // the one that brings it, if one does
	handedBack bool
}

// errHandedBack: the consumer stands still, or has recorded as many failures as
// it may. The event was neither applied nor recorded.
var errHandedBack = errors.New("the consumer takes no events now")

func (d *storedDelivery) Data() []byte              { return d.data }
func (d *storedDelivery) Subject() string           { return d.from.Subject }
func (d *storedDelivery) Stream() string            { return d.from.Stream }
func (d *storedDelivery) Sequence() uint64          { return uint64(d.from.StreamSeq) }
func (d *storedDelivery) Attempt() int              { return d.from.BudgetAttempts + 1 }
func (d *storedDelivery) StoredAt() time.Time       { return time.Time{} }
func (d *storedDelivery) Ack() error                { return nil }
func (d *storedDelivery) Retry(time.Duration) error { d.handedBack = true; return nil }
func (d *storedDelivery) InProgress() error         { return nil }

// replayOf names the replay that brings an event. The header alone proves
// nothing: whoever may publish could write it, and a replay is spared the check
// of an event's age.
func replayOf(d Delivery) string {
	if stored, ok := d.(*storedDelivery); ok {
		return stored.replay
	}
	return ""
}

// Header knows no other header than that of a replay.
func (d *storedDelivery) Header(name string) string {
	if name == replayHeader {
		return d.replay
	}
	return ""
}

func (d *storedDelivery) Headers() map[string][]string {
	if d.replay == "" {
		return map[string][]string{}
	}
	return map[string][]string{replayHeader: {d.replay}}
}

// applyStored applies events that the broker has no part in. Without an error
// each has come to its end, applied or recorded: to go on behind one that was
// only handed back would be to lose it.
func (c *Consumer) applyStored(ctx context.Context, events []*storedDelivery) error {
	deliveries := make([]Delivery, len(events))
	for i, event := range events {
		deliveries[i] = event
	}
	if err := c.apply(ctx, c.open(deliveries)); err != nil {
		return err
	}
	if slices.ContainsFunc(events, func(d *storedDelivery) bool { return d.handedBack }) {
		return errHandedBack
	}
	return nil
}
