package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"orderpaid/platform/messaging/natsbroker"
)

// A StreamAudit is what one pass over the whole stream found. "First" always
// means the first appearance of an event: a relay may send one again, and what
// counts for order is when a consumer could see it first.
type StreamAudit struct {
	Messages   int
	Copies     int                       // messages whose event had appeared before
	Unreadable int                       // messages that are no events
	Inversions []string                  // events that appeared first after a later version of their aggregate
	ByOrder    map[string]map[string]int // by order and kind: distinct events

	first  uint64                 // the oldest position that the stream still has
	maxAge time.Duration          // at which the stream drops events; 0 for never
	events map[uuid.UUID][]uint64 // where each is, copies included
	newest map[string]int64       // by aggregate: the highest version that has appeared
}

// Has reports whether the event is on the stream.
func (a *StreamAudit) Has(id uuid.UUID) bool { _, found := a.events[id]; return found }

// Distinct returns how many different events are on the stream.
func (a *StreamAudit) Distinct() int { return len(a.events) }

// How much the audit asks for at once, and how long it goes on asking a server
// that does not answer.
const (
	readMessages = 1000
	readBytes    = 8 << 20
	maxSilence   = 30 * time.Second
	silencePause = 100 * time.Millisecond
)

// AuditStream reads the stream from its first message to the one that is its
// last at the start. It creates no consumer: a user who may only read can do
// it, and it leaves no trace on the server.
func AuditStream(ctx context.Context, natsURL string) (*StreamAudit, error) {
	nc, err := natsbroker.Dial(ctx, natsURL, "audit")
	if err != nil {
		return nil, fmt.Errorf("audit the stream: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("audit the stream: %w", err)
	}
	stream, err := js.Stream(ctx, natsbroker.DefaultStream)
	if err != nil {
		return nil, fmt.Errorf("audit the stream: %w", err)
	}
	audit := newAudit()
	state := stream.CachedInfo().State
	audit.first, audit.maxAge = state.FirstSeq, stream.CachedInfo().Config.MaxAge
	if state.Msgs == 0 {
		return audit, nil
	}
	heard := time.Now()
	for next := max(state.FirstSeq, 1); next <= state.LastSeq; {
		reached, err := audit.read(ctx, js, next)
		switch {
		case reached > next:
			next, heard = reached, time.Now()
		case ctx.Err() != nil || time.Since(heard) > maxSilence:
			return nil, fmt.Errorf("audit the stream from message %d: %w", next, cmp.Or(ctx.Err(), err))
		default: // a busy server answers later
			<-time.After(silencePause)
		}
	}
	return audit, nil
}

// read adds one answer of the server, and returns where the next one starts:
// also beside an error, what was read is read.
func (a *StreamAudit) read(ctx context.Context, js jetstream.JetStream, next uint64) (uint64, error) {
	before := next
	answers, err := jetstreamext.GetBatch(ctx, js, natsbroker.DefaultStream, readMessages,
		jetstreamext.GetBatchSeq(next), jetstreamext.GetBatchMaxBytes(readBytes))
	if err != nil {
		return next, err
	}
	for m, err := range answers {
		if err != nil {
			return next, err
		}
		a.add(m.Sequence, m.Data)
		next = m.Sequence + 1
	}
	if next == before {
		return next, errors.New("the server does not answer")
	}
	return next, nil
}

func newAudit() *StreamAudit {
	return &StreamAudit{ByOrder: map[string]map[string]int{}, events: map[uuid.UUID][]uint64{}, newest: map[string]int64{}}
}

func (a *StreamAudit) add(position uint64, raw []byte) {
	a.Messages++
	var event struct {
		ID               uuid.UUID `json:"event_id"`
		Type             string    `json:"event_type"`
		SchemaVersion    int       `json:"schema_version"`
		AggregateType    string    `json:"aggregate_type"`
		AggregateID      string    `json:"aggregate_id"`
		AggregateVersion int64     `json:"aggregate_version"`
		Data             struct {
			OrderID string `json:"order_id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &event); err != nil || event.ID == uuid.Nil {
		a.Unreadable++
		return
	}
	known := a.Has(event.ID)
	a.events[event.ID] = append(a.events[event.ID], position)
	if known {
		a.Copies++
		return
	}

	aggregate := event.AggregateType + "/" + event.AggregateID
	if newest := a.newest[aggregate]; event.AggregateVersion < newest {
		a.Inversions = append(a.Inversions, fmt.Sprintf("%s: version %d appears after %d", aggregate, event.AggregateVersion, newest))
	} else {
		a.newest[aggregate] = event.AggregateVersion
	}

	if event.Data.OrderID != "" {
		if a.ByOrder[event.Data.OrderID] == nil {
			a.ByOrder[event.Data.OrderID] = map[string]int{}
		}
		a.ByOrder[event.Data.OrderID][fmt.Sprintf("%s.v%d", event.Type, event.SchemaVersion)]++
	}
}
