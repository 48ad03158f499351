// Package messagingtest helps services to test what they stage and consume,
// without a broker and against their real database.
package messagingtest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orderpaid/platform/messaging"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Staged returns the events of T's kind that db's outbox holds, oldest first.
func Staged[T messaging.Payload](t testing.TB, db Querier) []messaging.Event[T] {
	t.Helper()
	var zero T
	rows, err := db.Query(t.Context(), `SELECT payload FROM message_outbox WHERE kind = $1 ORDER BY id`, zero.Kind().String())
	if err != nil {
		t.Fatalf("read outbox: %v", err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatalf("read outbox: %v", err)
	}
	events := make([]messaging.Event[T], len(payloads))
	for i, payload := range payloads {
		var wire struct {
			messaging.Meta
			Data T `json:"data"`
		}
		if err := json.Unmarshal(payload, &wire); err != nil {
			t.Fatalf("decode staged %s: %v", zero.Kind(), err)
		}
		events[i] = messaging.Event[T]{Meta: wire.Meta, Data: wire.Data}
	}
	return events
}

// RequireStaged returns the one event of T's kind in db's outbox and fails the
// test if there are more or fewer.
func RequireStaged[T messaging.Payload](t testing.TB, db Querier) messaging.Event[T] {
	t.Helper()
	events := Staged[T](t, db)
	if len(events) != 1 {
		var zero T
		t.Fatalf("got %d staged %s, want 1", len(events), zero.Kind())
	}
	return events[0]
}

// Envelope encodes an event as another service would have published it, with
// an id of its own.
func Envelope(t testing.TB, aggregateID string, version int64, payload messaging.Payload) []byte {
	t.Helper()
	data, err := json.Marshal(payload)
	if err != nil {
		t.Fatalf("encode %s: %v", payload.Kind(), err)
	}
	kind := payload.Kind()
	raw, err := json.Marshal(messaging.Envelope{Meta: messaging.Meta{
		EventID: uuid.Must(uuid.NewV7()), EventType: kind.Type, SchemaVersion: kind.Version,
		AggregateType: kind.Aggregate, AggregateID: aggregateID, AggregateVersion: version,
		OccurredAt: time.Now().UTC(), Producer: "test", Tenant: "default", CorrelationID: aggregateID,
	}, Data: data})
	if err != nil {
		t.Fatalf("encode envelope: %v", err)
	}
	return raw
}

// An Answer is how a consumer answered one delivery.
type Answer struct {
	Acked bool          // applied, a duplicate, or recorded as a failure
	Retry time.Duration // if not acked: asked for again after this time; only while too much is parked already
}

// Deliver hands messages to the consumer as one group, in order, and returns
// its answers. It fails the test if the consumer gives up on the group.
func Deliver(t testing.TB, c *messaging.Consumer, messages ...[]byte) []Answer {
	t.Helper()
	deliveries := make([]*delivery, len(messages))
	arguments := make([]messaging.Delivery, len(messages))
	for i, message := range messages {
		deliveries[i] = &delivery{data: message, sequence: nextSequence()}
		arguments[i] = deliveries[i]
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Apply(ctx, arguments...); err != nil {
		t.Fatalf("deliver %d messages: %v", len(messages), err)
	}
	answers := make([]Answer, len(deliveries))
	for i, d := range deliveries {
		answers[i] = d.answer
	}
	return answers
}

// Execer is a pool, a connection or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// RetryAll makes every recorded retry of the consumer due now and works on
// them, and on what they release, until nothing is due; what fails again waits
// for its next time. Missing versions are looked into as well.
func RetryAll(t testing.TB, db Execer, c *messaging.Consumer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := db.Exec(ctx, `UPDATE message_failure SET next_attempt_at = clock_timestamp() WHERE state IN ('retrying', 'parked')`); err != nil {
		t.Fatalf("make retries due: %v", err)
	}
	for busy := true; busy; {
		var err error
		if busy, err = c.RetryDue(ctx); err != nil {
			t.Fatalf("retry: %v", err)
		}
	}
}

// AllAcked reports whether every message was done with.
func AllAcked(answers []Answer) bool {
	return !slices.ContainsFunc(answers, func(a Answer) bool { return !a.Acked })
}

var (
	sequenceMu sync.Mutex
	sequence   uint64
)

func nextSequence() uint64 {
	sequenceMu.Lock()
	defer sequenceMu.Unlock()
	sequence++
	return sequence
}

// delivery is a message without a broker behind it.
type delivery struct {
	data     []byte
	sequence uint64
	answer   Answer
}

func (d *delivery) Data() []byte                    { return d.data }
func (d *delivery) Subject() string                 { return "shop.events.test" }
func (d *delivery) Header(string) string            { return "" }
func (d *delivery) Headers() map[string][]string    { return map[string][]string{} }
func (d *delivery) Stream() string                  { return "TEST" }
func (d *delivery) Sequence() uint64                { return d.sequence }
func (d *delivery) Attempt() int                    { return 1 }
func (d *delivery) StoredAt() time.Time             { return time.Now() }
func (d *delivery) Ack() error                      { d.answer = Answer{Acked: true}; return nil }
func (d *delivery) Retry(after time.Duration) error { d.answer = Answer{Retry: after}; return nil }
func (d *delivery) InProgress() error               { return nil }
