package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"go.opentelemetry.io/otel/propagation"

	"orderpaid/platform/postgres"
)

// A Draft is an event that has not been staged yet. Its id is made here, once:
// every publish, redelivery and replay carries the same.
type Draft struct {
	meta    Meta
	kind    Kind
	payload Payload
	err     error
}

// New drafts an event about an aggregate. version is the aggregate's version
// after the change: the first event of an aggregate has version 1, and the
// caller must hold the aggregate's row lock, which is what makes versions and
// the order of outbox rows agree.
func New(aggregateID string, version int64, p Payload) Draft {
	id, err := uuid.NewV7()
	k := p.Kind()
	return Draft{
		meta: Meta{
			EventID: id, EventType: k.Type, SchemaVersion: k.Version,
			AggregateType: k.Aggregate, AggregateID: aggregateID, AggregateVersion: version,
			OccurredAt: time.Now().UTC().Truncate(time.Microsecond), CorrelationID: aggregateID,
		},
		kind: k, payload: p, err: err,
	}
}

// ID returns the id that the event has and will keep.
func (d Draft) ID() uuid.UUID { return d.meta.EventID }

// CausedBy says which event led to this one. They share a correlation id.
func (d Draft) CausedBy(m Meta) Draft {
	d.meta.CausationID = m.EventID.String()
	d.meta.CorrelationID = m.CorrelationID
	d.meta.Tenant = m.Tenant
	return d
}

// OccurredAt sets when the fact became true, if that is not now.
func (d Draft) OccurredAt(t time.Time) Draft {
	d.meta.OccurredAt = t.UTC().Truncate(time.Microsecond)
	return d
}

// ExpiresAt sets the time after which no consumer may act on the event any
// more. It is still published: consumers record it as "expired".
func (d Draft) ExpiresAt(t time.Time) Draft {
	d.meta.ExpiresAt = t.UTC().Truncate(time.Microsecond)
	return d
}

// ErrEventRefused: the event cannot be staged as it is, and never will be.
// The business transaction must not commit without it.
var ErrEventRefused = errors.New("event refused")

// ErrNoPartition: the outbox has no partition for the present month. It is a
// fault of operation: partitions are prepared a year ahead and were not, or
// this machine's clock is wrong.
var ErrNoPartition = errors.New("the outbox has no partition for this event id: check the clock, " +
	"and have the database's owner run SELECT message_prepare_partitions(12)")

// noPartition is the SQLSTATE of a row that no partition takes; the outbox has
// no other CHECK that a draft could fail.
const noPartition = "23514"

// OutboxConfig configures an [Outbox].
type OutboxConfig struct {
	Producer string // the service that states the facts. Required.
	Tenant   string // whose data it is, for whoever reads the stream. Defaults to "default".

	// Wake tells the relays that something was committed, and to which shards.
	// It is called after the commit, must not block, and may be lost: relays
	// poll as well, so a lost call costs latency and nothing else. Defaults to
	// no hint.
	Wake func(ShardSet)
}

// An Outbox stages events. It is the only way to publish: Add takes a
// transaction, so that publishing outside one does not compile.
// Pattern: https://microservices.io/patterns/data/transactional-outbox.html
type Outbox struct{ cfg OutboxConfig }

// NewOutbox returns an outbox for one service.
func NewOutbox(cfg OutboxConfig) (*Outbox, error) {
	if !identifier(cfg.Producer) {
		return nil, fmt.Errorf("outbox: producer %q is not an identifier", cfg.Producer)
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "default"
	}
	return &Outbox{cfg: cfg}, nil
}

// sqlStage writes facts and queue in one statement. ids come from one plain
// sequence at insert time; together with the aggregate's row lock, which the
// caller holds, id order is the order of an aggregate's versions.
const sqlStage = `
WITH fact AS (
	INSERT INTO message_outbox (event_id, shard, aggregate_type, aggregate_id, aggregate_version, kind, subject, payload, trace_parent, expires_at)
	SELECT event_id, shard, aggregate_type, aggregate_id, aggregate_version, kind, subject, payload, trace_parent, expires_at
	  FROM unnest(@event_ids::uuid[], @shards::smallint[], @aggregate_types::text[], @aggregate_ids::text[], @versions::bigint[],
	              @kinds::text[], @subjects::text[], @payloads::bytea[], @trace_parents::text[], @expiries::timestamptz[])
	       WITH ORDINALITY AS e(event_id, shard, aggregate_type, aggregate_id, aggregate_version, kind, subject, payload, trace_parent, expires_at, n)
	 ORDER BY n
	RETURNING shard, id, event_id
)
INSERT INTO message_outbox_pending (shard, id, event_id)
SELECT shard, id, event_id FROM fact`

// Add stages events in the caller's transaction: they become visible to the
// relays when it commits, or never. All drafts go in one statement, in order.
//
// Events over [MaxEventBytes], and those that no consumer could read, return
// an error that matches [ErrEventRefused]; the transaction is still usable
// then, but the caller must not commit the fact without its event.
func (o *Outbox) Add(ctx context.Context, tx pgx.Tx, drafts ...Draft) error {
	if len(drafts) == 0 {
		return nil
	}
	rows := newStageRows(len(drafts))
	trace := traceParent(ctx)
	for _, d := range drafts {
		if err := rows.add(o.envelope(d, trace)); err != nil {
			return fmt.Errorf("stage %s of %s: %w", d.kind, d.meta.AggregateID, err)
		}
	}
	if _, err := tx.Exec(ctx, sqlStage, rows.args()); err != nil {
		if postgres.Code(err) == noPartition {
			return fmt.Errorf("stage %s of %s: %w", drafts[0].kind, drafts[0].meta.AggregateID, ErrNoPartition)
		}
		return fmt.Errorf("stage %d events, first %s: %w", len(drafts), drafts[0].meta.EventID, err)
	}
	if o.cfg.Wake != nil {
		if hook, ok := tx.(interface{ AfterCommit(func()) }); ok {
			hook.AfterCommit(func() { o.cfg.Wake(rows.shardSet()) })
		}
	}
	return nil
}

// envelope completes a draft with what only the outbox knows.
func (o *Outbox) envelope(d Draft, traceParent string) (Kind, Envelope, error) {
	if d.err != nil {
		return d.kind, Envelope{}, fmt.Errorf("make event id: %w", d.err)
	}
	data, err := json.Marshal(d.payload)
	if err != nil {
		return d.kind, Envelope{}, fmt.Errorf("%w: %w", ErrEventRefused, err)
	}
	env := Envelope{Meta: d.meta, Data: data}
	env.Producer = o.cfg.Producer
	if env.Tenant == "" {
		env.Tenant = o.cfg.Tenant
	}
	env.TraceParent = traceParent
	return d.kind, env, nil
}

// traceParent names the span under which events are staged; "" without one.
func traceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// stageRows holds the columns of one sqlStage call.
type stageRows struct {
	eventIDs                     []uuid.UUID
	shards                       []int16
	aggregateTypes, aggregateIDs []string
	versions                     []int64
	kinds, subjects              []string
	payloads                     [][]byte
	traceParents                 []string
	expiries                     []*time.Time
}

func newStageRows(n int) *stageRows {
	texts := func() []string { return make([]string, 0, n) }
	return &stageRows{eventIDs: make([]uuid.UUID, 0, n), shards: make([]int16, 0, n), aggregateTypes: texts(), aggregateIDs: texts(),
		versions: make([]int64, 0, n), kinds: texts(), subjects: texts(), payloads: make([][]byte, 0, n), traceParents: texts(),
		expiries: make([]*time.Time, 0, n)}
}

func (r *stageRows) add(k Kind, env Envelope, err error) error {
	if err != nil {
		return err
	}
	if !identifier(k.Context) || !identifier(k.Aggregate) {
		return fmt.Errorf("%w: context %q and aggregate %q must be identifiers", ErrEventRefused, k.Context, k.Aggregate)
	}
	payload, err := encode(env)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEventRefused, err)
	}
	shard := ShardOf(env.AggregateID)
	r.eventIDs = append(r.eventIDs, env.EventID)
	r.shards = append(r.shards, int16(shard))
	r.aggregateTypes = append(r.aggregateTypes, env.AggregateType)
	r.aggregateIDs = append(r.aggregateIDs, env.AggregateID)
	r.versions = append(r.versions, env.AggregateVersion)
	r.kinds = append(r.kinds, k.String())
	r.subjects = append(r.subjects, k.Subject(shard))
	r.payloads = append(r.payloads, payload)
	r.traceParents = append(r.traceParents, env.TraceParent)
	var expiry *time.Time
	if !env.ExpiresAt.IsZero() {
		expiry = &env.ExpiresAt
	}
	r.expiries = append(r.expiries, expiry)
	return nil
}

func (r *stageRows) shardSet() (set ShardSet) {
	for _, shard := range r.shards {
		set = set.With(int(shard))
	}
	return set
}

func (r *stageRows) args() pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"event_ids": r.eventIDs, "shards": r.shards, "aggregate_types": r.aggregateTypes, "aggregate_ids": r.aggregateIDs,
		"versions": r.versions, "kinds": r.kinds, "subjects": r.subjects, "payloads": r.payloads, "trace_parents": r.traceParents,
		"expiries": pgtype.FlatArray[*time.Time](r.expiries), // as it is, pgx would look at each element by reflection
	}
}
