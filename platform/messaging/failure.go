package messaging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/faults"
	"orderpaid/platform/postgres"
)

// What an event is recorded as when it could not be applied; see the table
// message_failure.
const (
	stateRetrying = "retrying"
	stateParked   = "parked"
	stateOpen     = "open"
)

// codeGap marks an event that waits for an earlier version of its aggregate.
const codeGap = "version_gap"

// A failure is what is recorded about one event.
type failure struct {
	delivery Delivery
	env      Envelope // as far as it could be read
	state    string
	class    string
	code     string
	detail   string
	stack    string
	blocking bool          // later events of the aggregate wait behind it
	after    time.Duration // until the next attempt, for retrying; until the gap is looked into, for a gap
	counts   int           // attempts made: 1, or 0 for what was only parked
}

// deadLetter is a failure that waits for a person.
func deadLetter(d Delivery, env Envelope, cause error, blocking bool) failure {
	return failure{delivery: d, env: env, state: stateOpen, class: permanent.class(), code: codeOf(cause),
		detail: detailOf(cause), stack: stackOf(cause), blocking: blocking, counts: 1}
}

func stackOf(err error) string {
	var panicked *panicError
	if errors.As(err, &panicked) {
		return truncate(string(panicked.stack), 8000)
	}
	return ""
}

// sqlRecordFailure is one row per event and consumer: while one is unresolved,
// the same event only adds to it, however often it is delivered, published or
// replayed. The bytes go into a bytea column exactly as they came; jsonb would
// refuse some and rewrite others, and the evidence of the fault would be gone.
var sqlRecordFailure = `
INSERT INTO message_failure (consumer, dedupe_key, blocking, event_id, event_type, schema_version, aggregate_type, aggregate_id,
	aggregate_version, stream, stream_seq, subject, headers, payload, sealed_by, state, error_class, error_code, error_detail, error_stack,
	attempts, budget_attempts, next_attempt_at, trace_id, owner, runbook, due_at)
VALUES (@consumer, @dedupe_key, @blocking, @event_id, @event_type, @schema_version, @aggregate_type, @aggregate_id,
	@aggregate_version, @stream, @stream_seq, @subject, @headers, @payload, @sealed_by, @state, @class, @code, @detail, @stack,
	@attempts, @attempts, CASE WHEN @state <> 'open' THEN clock_timestamp() + @after::interval END, @trace_id, @owner, @runbook,
	CASE WHEN @state = 'open' THEN now() + @sla::interval END)
ON CONFLICT (consumer, dedupe_key) WHERE state IN ('retrying', 'parked', 'open')
DO UPDATE SET attempts = message_failure.attempts + excluded.attempts, last_failed_at = now(),` + sqlReadableWins

// sqlReadableWins lets a copy that can be read take the place of one that
// cannot: it is the copy that can be tried again.
var sqlReadableWins = readableWins("blocking", "payload", "sealed_by", "headers", "stream", "stream_seq", "subject", "event_type", "schema_version",
	"aggregate_type", "aggregate_id", "aggregate_version", "state", "error_class", "error_code", "error_detail", "next_attempt_at", "due_at")

func readableWins(columns ...string) string {
	assignments := make([]string, len(columns))
	for i, column := range columns {
		assignments[i] = fmt.Sprintf("\n\t%s = CASE WHEN excluded.blocking AND NOT message_failure.blocking THEN excluded.%[1]s ELSE message_failure.%[1]s END", column)
	}
	return strings.Join(assignments, ",")
}

// record writes failures inside tx.
func (c *Consumer) record(ctx context.Context, tx pgx.Tx, failures ...failure) error {
	batch := &pgx.Batch{}
	for _, f := range failures {
		args, err := c.failureArgs(f)
		if err != nil {
			return err
		}
		batch.Queue(sqlRecordFailure, args)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("record %d failures: %w", len(failures), err)
	}
	return nil
}

func (c *Consumer) failureArgs(f failure) (pgx.StrictNamedArgs, error) {
	headers, err := json.Marshal(f.delivery.Headers())
	if err != nil {
		return nil, fmt.Errorf("encode headers: %w", err)
	}
	payload, sealedBy, err := c.cfg.PayloadKeys.seal(f.delivery.Data())
	if err != nil {
		return nil, fmt.Errorf("seal payload: %w", err)
	}
	return pgx.StrictNamedArgs{
		"consumer": c.name, "dedupe_key": dedupeKey(f.delivery, f.env), "blocking": f.blocking, "event_id": eventID(f.env),
		"event_type": text(f.env.EventType), "schema_version": min(max(f.env.SchemaVersion, 0), math.MaxInt32), "aggregate_type": text(f.env.AggregateType),
		"aggregate_id": text(f.env.AggregateID), "aggregate_version": f.env.AggregateVersion,
		"stream": f.delivery.Stream(), "stream_seq": int64(f.delivery.Sequence()), "subject": text(f.delivery.Subject()),
		"headers": headers, "payload": payload, "sealed_by": sealedBy, "state": f.state, "class": f.class, "code": f.code,
		"detail": f.detail, "stack": f.stack, "attempts": f.counts, "after": f.after, "trace_id": traceID(f.env),
		"owner": c.cfg.Owner, "runbook": c.cfg.Runbook, "sla": c.cfg.DeadLetterSLA,
	}, nil
}

const sqlApplied = `SELECT event_id FROM message_inbox WHERE consumer = $1 AND event_id = ANY($2::uuid[])`

// applied returns which of the events have had their effect.
func (c *Consumer) applied(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := tx.Query(ctx, sqlApplied, c.name, ids)
	if err != nil {
		return nil, fmt.Errorf("read inbox: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("read inbox: %w", err)
	}
	applied := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		applied[id] = true
	}
	return applied, nil
}

// settle commits a failure and only then acknowledges its deliveries. Until it
// is committed the event stays with the broker: an acknowledgement before that
// would lose it.
func (c *Consumer) settle(ctx context.Context, f failure, deliveries ...Delivery) error {
	for attempt := 0; ; attempt++ {
		duplicate, err := c.settleOnce(ctx, f)
		if err == nil {
			faults.Hit("failure.after_commit_before_ack")
			if !duplicate {
				c.report(ctx, f)
			}
			return ackAll(deliveries)
		}
		if errors.Is(err, errPlaceLost) {
			return err
		}
		if attempt > 0 && judge(err) == permanent && !f.bare() {
			// What was read of it cannot be stored. It must not stop the consumer:
			// its bytes, its place and its code are what matters.
			f.env, f.blocking, f.detail = Envelope{}, false, f.detail+"; its fields could not be stored"
			continue
		}
		if attempt == 0 {
			c.cfg.Logger.Warn("failure not recorded yet; the event stays with the broker", "event_id", eventID(f.env), "code", codeOf(err))
		}
		wait(ctx, backoff(attempt, 50*time.Millisecond, 5*time.Second))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// bare reports whether nothing of the event's own fields would be recorded.
func (f failure) bare() bool {
	return f.env.EventID == uuid.Nil && f.env.EventType == "" && f.env.SchemaVersion == 0
}

// settleOnce reports a duplicate if the event has had its effect already: an
// unreadable copy of it is then no reason for an alarm.
func (c *Consumer) settleOnce(ctx context.Context, f failure) (duplicate bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.HandlerTimeout)
	defer cancel()
	err = postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.place.fence(ctx, tx); err != nil {
			return err
		}
		if f.env.EventID != uuid.Nil {
			applied, err := c.applied(ctx, tx, []uuid.UUID{f.env.EventID})
			if err != nil {
				return err
			}
			if duplicate = applied[f.env.EventID]; duplicate {
				return nil
			}
		}
		if err := c.record(ctx, tx, f); err != nil {
			return err
		}
		faults.Hit("failure.before_commit")
		return nil
	})
	if err == nil && f.blocking && !duplicate {
		c.troubled.Store(true)
	}
	return duplicate, err
}

const sqlCloseFailures = `
UPDATE message_failure SET state = 'resolved', resolved_at = clock_timestamp(), resolution = @how, next_attempt_at = NULL
 WHERE consumer = @consumer AND event_id = ANY(@events::uuid[]) AND state IN ('retrying', 'parked', 'open')`

// closeFailures ends, in the transaction that applies them, the failures of
// events that came to their effect in another way than by a retry: by a
// redelivery, or by a replay. Left open they would stop their aggregate, and
// ask a person for what is done.
func (c *Consumer) closeFailures(ctx context.Context, tx pgx.Tx, items, waiting []*item) error {
	if !c.troubled.Load() && items[0].replay == "" { // the common case costs no statement
		return nil
	}
	how := "redelivered"
	if items[0].replay != "" {
		how = "replay " + items[0].replay
	}
	events := make([]uuid.UUID, 0, len(items))
	for _, it := range items {
		if !slices.Contains(waiting, it) {
			events = append(events, it.env.EventID)
		}
	}
	_, err := tx.Exec(ctx, sqlCloseFailures, pgx.StrictNamedArgs{"how": how, "consumer": c.name, "events": events})
	if err != nil {
		return fmt.Errorf("close failures of applied events: %w", err)
	}
	return nil
}

func (c *Consumer) report(ctx context.Context, f failure) {
	log := c.cfg.Logger.With("event_id", eventID(f.env), "kind", f.env.name(), "stream", f.delivery.Stream(),
		"sequence", f.delivery.Sequence(), "code", f.code, "error", f.detail)
	if f.state == stateOpen {
		happened(ctx, spanDeadLetter, eventID(f.env), f.code, -1)
		c.meters.buried(ctx, f.code)
		log.Error("dead letter: the event cannot be applied as it is")
		return
	}
	happened(ctx, spanRetry, eventID(f.env), f.code, f.after)
	c.meters.retried(ctx, f.class)
	log.Warn("the event failed and will be tried again", "delay", f.after)
}

func ackAll(deliveries []Delivery) error {
	var errs []error
	for _, d := range deliveries {
		errs = append(errs, d.Ack())
	}
	return errors.Join(errs...)
}

// dedupeKey identifies a failure: by the event, or, for what has no readable
// id, by its place and its bytes. The place alone would not do: a stream that
// was made anew counts from 1 again.
func dedupeKey(d Delivery, env Envelope) string {
	if env.EventID != uuid.Nil {
		return env.EventID.String()
	}
	sum := sha256.Sum256(d.Data())
	return fmt.Sprintf("%s/%d/%s", d.Stream(), d.Sequence(), hex.EncodeToString(sum[:]))
}

func eventID(env Envelope) *uuid.UUID {
	if env.EventID == uuid.Nil {
		return nil
	}
	return &env.EventID
}

func traceID(env Envelope) *string {
	if !validTraceParent(env.TraceParent) {
		return nil
	}
	id := env.TraceParent[3:35]
	return &id
}

// text makes a field of an unreadable event storable: bounded, valid, no NUL.
func text(s string) string {
	return truncate(strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?"), MaxIDBytes)
}
