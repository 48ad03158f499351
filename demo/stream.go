package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

	events map[uuid.UUID]struct{}
	newest map[string]int64 // by aggregate: the highest version that has appeared
}

// Has reports whether the event is on the stream.
func (a *StreamAudit) Has(id uuid.UUID) bool { _, found := a.events[id]; return found }

// Distinct returns how many different events are on the stream.
func (a *StreamAudit) Distinct() int { return len(a.events) }

// readTimeout is how long the stream may be silent before the audit gives up.
const readTimeout = 30 * time.Second

// AuditStream reads the stream from its first message to the one that is its
// last at the start.
func AuditStream(ctx context.Context, natsURL string) (*StreamAudit, error) {
	nc, err := nats.Connect(natsURL, nats.Name("audit"), nats.CustomInboxPrefix("_INBOX_audit"))
	if err != nil {
		return nil, fmt.Errorf("audit the stream: connect to nats: %w", err)
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
	audit := &StreamAudit{ByOrder: map[string]map[string]int{}, events: map[uuid.UUID]struct{}{}, newest: map[string]int64{}}
	if stream.CachedInfo().State.Msgs == 0 {
		return audit, nil
	}
	// An ordered consumer leaves nothing behind on the server and starts again
	// by itself where a gap shows.
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, fmt.Errorf("audit the stream: %w", err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("audit the stream: %w", err)
	}
	defer messages.Stop()
	for last := stream.CachedInfo().State.LastSeq; ; {
		msg, err := messages.Next(jetstream.NextMaxWait(readTimeout))
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("audit the stream after %d messages: %w", audit.Messages, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("audit the stream: %w", err)
		}
		audit.add(msg.Data())
		if meta.Sequence.Stream >= last {
			return audit, nil
		}
	}
}

func (a *StreamAudit) add(raw []byte) {
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
	if a.Has(event.ID) {
		a.Copies++
		return
	}
	a.events[event.ID] = struct{}{}

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
