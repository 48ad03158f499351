package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"orderpaid/platform/faults"
	"orderpaid/platform/postgres"
)

// Parking keeps the order of one aggregate without stopping the others: while
// an event is unresolved in message_failure, later versions of its aggregate
// are recorded behind it, in order, and acknowledged. The broker so holds
// nothing back, and a poison event costs one aggregate and not the stream.
//
// Earlier versions are let through: an OrderRefunded that waits for its
// OrderPaid must not park the very event it waits for.

const sqlBlocked = `
SELECT f.aggregate_type, f.aggregate_id, min(f.aggregate_version)
  FROM message_failure f
  JOIN unnest(@types::text[], @ids::text[]) AS a(type, id) ON f.aggregate_type = a.type AND f.aggregate_id = a.id
 WHERE f.consumer = @consumer AND f.blocking AND f.state IN ('retrying', 'parked', 'open')
 GROUP BY f.aggregate_type, f.aggregate_id`

// splitBlocked separates events that must wait behind an unresolved one.
func (c *Consumer) splitBlocked(ctx context.Context, tx pgx.Tx, items []*item) (free, behind []*item, err error) {
	if !c.troubled.Load() { // the common case costs no statement
		return items, nil, nil
	}
	types, ids := aggregatesOf(items)
	rows, err := tx.Query(ctx, sqlBlocked, pgx.StrictNamedArgs{"consumer": c.name, "types": types, "ids": ids})
	if err != nil {
		return nil, nil, fmt.Errorf("look for unresolved failures: %w", err)
	}
	blocked := map[aggregateKey]int64{}
	var key aggregateKey
	var version int64
	if _, err := pgx.ForEachRow(rows, []any{&key.Type, &key.ID, &version}, func() error { blocked[key] = version; return nil }); err != nil {
		return nil, nil, fmt.Errorf("look for unresolved failures: %w", err)
	}
	for _, it := range items {
		if version, ok := blocked[it.aggregate()]; ok && it.env.AggregateVersion > version {
			behind = append(behind, it)
		} else {
			free = append(free, it)
		}
	}
	return free, behind, nil
}

func aggregatesOf(items []*item) (types, ids []string) {
	seen := make(map[aggregateKey]bool, len(items))
	for _, it := range items {
		if key := it.aggregate(); !seen[key] {
			seen[key] = true
			types, ids = append(types, key.Type), append(ids, key.ID)
		}
	}
	return types, ids
}

const sqlCountParked = `
SELECT count(*), count(*) FILTER (WHERE aggregate_type = ANY($2::text[]) AND aggregate_id = ANY($3::text[]))
  FROM message_failure WHERE consumer = $1 AND state IN ('retrying', 'parked', 'open')`

// park records events that wait: behind an unresolved one, or for a missing
// version. Copies of events that have had their effect are dropped. Above the
// bounds nothing more is recorded; such events stay with the broker, and an
// alarm says so.
func (c *Consumer) park(ctx context.Context, tx pgx.Tx, waiting []*item) error {
	if len(waiting) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(waiting))
	for i, it := range waiting {
		ids[i] = it.env.EventID
	}
	applied, err := c.applied(ctx, tx, ids)
	if err != nil {
		return err
	}
	types, aggregates := aggregatesOf(waiting)
	var total, same int
	if err := tx.QueryRow(ctx, sqlCountParked, c.name, types, aggregates).Scan(&total, &same); err != nil {
		return fmt.Errorf("count parked events: %w", err)
	}
	c.troubled.Store(true) // also if this transaction fails: the next look at the table tells
	full := total+len(waiting) > c.cfg.MaxParked || same > c.cfg.MaxParkedPerAggregate*len(types)
	var failures []failure
	for _, it := range waiting {
		switch {
		case applied[it.env.EventID]:
			it.result, it.skipped = "duplicate", true
		case full:
			it.waiting = true
			continue
		default:
			it.result, it.skipped = "parked", true
			f := c.parkedFailure(it)
			failures = append(failures, f)
			happened(ctx, spanParked, &it.env.EventID, f.code, f.after)
		}
		it.waiting = false
	}
	if full {
		c.meters.parkingFull(ctx)
		c.cfg.Logger.Error("too many parked events: later ones stay with the broker until failures are resolved", "parked", total)
	}
	return c.record(ctx, tx, failures...)
}

const sqlCountUnresolved = `
SELECT count(*) FROM message_failure WHERE consumer = $1 AND state IN ('retrying', 'parked', 'open')`

// parkingFull reports whether this consumer has recorded as much as it may.
// The count costs time only when there is trouble.
func (c *Consumer) parkingFull(ctx context.Context) (bool, error) {
	if !c.troubled.Load() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.HandlerTimeout)
	defer cancel()
	var unresolved int
	if err := c.pool.QueryRow(ctx, sqlCountUnresolved, c.name).Scan(&unresolved); err != nil {
		return false, fmt.Errorf("count unresolved failures: %w", err)
	}
	if unresolved < c.cfg.MaxParked {
		return false, nil
	}
	c.meters.parkingFull(ctx)
	c.cfg.Logger.Error("too many recorded failures: events that fail stay with the broker until some are resolved", "unresolved", unresolved)
	return true, nil
}

func (c *Consumer) parkedFailure(it *item) failure {
	f := failure{delivery: it.deliveries[0], env: it.env, state: stateParked, class: "parked", blocking: true,
		code: "parked_behind", detail: "waits behind an earlier event of its aggregate", after: c.cfg.GapWait}
	if it.waiting {
		f.code, f.detail = codeGap, fmt.Sprintf("waits for the version before %d", it.env.AggregateVersion)
	}
	return f
}

// sqlReleaseNext wakes what waited for exactly the versions that were just
// applied.
const sqlReleaseNext = `
UPDATE message_failure f SET state = 'retrying', next_attempt_at = clock_timestamp()
  FROM unnest(@types::text[], @ids::text[], @versions::bigint[]) AS a(type, id, version)
 WHERE f.consumer = @consumer AND f.aggregate_type = a.type AND f.aggregate_id = a.id AND f.aggregate_version = a.version + 1
   AND (f.state = 'parked' OR f.state = 'open' AND f.error_code = 'version_gap')`

// sqlReleaseFirst wakes what is parked and first in its aggregate: nothing
// earlier is unresolved any more. One walk along the index of what is
// unresolved, however much is parked.
const sqlReleaseFirst = `
UPDATE message_failure SET state = 'retrying', next_attempt_at = clock_timestamp()
 WHERE failure_id IN (
	SELECT first.failure_id FROM (
		SELECT DISTINCT ON (aggregate_type, aggregate_id) failure_id, state, error_code FROM message_failure
		 WHERE consumer = $1 AND blocking AND state IN ('retrying', 'parked', 'open')
		 ORDER BY aggregate_type, aggregate_id, aggregate_version, failure_id) first
	 WHERE first.state = 'parked' AND first.error_code <> 'version_gap'
	 LIMIT 1000)`

// sqlTroubled tells whether an aggregate is blocked, and whether anything is to
// be done. What nobody could read blocks nothing, and yet is tried again when a
// person says so.
const sqlTroubled = `
SELECT EXISTS (SELECT FROM message_failure WHERE consumer = $1 AND blocking AND state IN ('retrying', 'parked', 'open')),
       EXISTS (SELECT FROM message_failure WHERE consumer = $1 AND state IN ('retrying', 'parked'))`

const sqlDue = `
SELECT failure_id FROM message_failure
 WHERE consumer = $1 AND state = 'retrying' AND next_attempt_at <= clock_timestamp()
 ORDER BY next_attempt_at LIMIT 100`

// retryLoop works on what was recorded, beside the stream, until ctx is done.
// It looks a few times a second; most of the time it finds nothing.
func (c *Consumer) retryLoop(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		pause := c.cfg.RetryPoll
		busy, err := c.retryDue(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			pause = backoff(failures, c.cfg.RetryPoll, 5*time.Second)
			failures++
			if failures == 1 || failures%10 == 0 {
				c.cfg.Logger.Warn("retries are held up", "failures", failures, "code", codeOf(err), "error", detailOf(err))
			}
		case busy:
			failures, pause = 0, 0
		default:
			failures = 0
		}
		wait(ctx, pause)
	}
}

// retryDue tries what is due once, and looks into gaps. It reports whether it
// found anything to do.
//
// It takes the consumer's work for one event at a time: a hundred slow retries
// must not make the stream wait.
func (c *Consumer) retryDue(ctx context.Context) (busy bool, err error) {
	if c.circuit.left() > 0 { // budgets stand still too
		return false, nil
	}
	if waiting, err := c.lookForTrouble(ctx); err != nil || !waiting {
		return false, err
	}
	if _, err := c.pool.Exec(ctx, sqlReleaseFirst, c.name); err != nil {
		return false, err
	}
	rows, err := c.pool.Query(ctx, sqlDue, c.name)
	if err != nil {
		return false, err
	}
	due, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return false, err
	}
	for _, id := range due {
		c.work.Lock()
		err := c.retry(ctx, id)
		c.work.Unlock()
		if err != nil || ctx.Err() != nil {
			return true, err
		}
		if c.circuit.left() > 0 {
			return false, nil
		}
	}
	filled, err := c.fillGaps(ctx)
	return len(due) > 0 || filled, err
}

// lookForTrouble renews what is known about unresolved failures. It keeps the
// consumer's transactions out meanwhile: a failure that one of them records
// between the look and the note would be forgotten, and overtaken.
func (c *Consumer) lookForTrouble(ctx context.Context) (waiting bool, err error) {
	c.work.Lock()
	defer c.work.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.HandlerTimeout)
	defer cancel()
	var troubled bool
	if err := c.pool.QueryRow(ctx, sqlTroubled, c.name).Scan(&troubled, &waiting); err != nil {
		return false, err
	}
	c.troubled.Store(troubled)
	return waiting, nil
}

const sqlTakeFailure = `
SELECT failure_id, payload, sealed_by, stream, stream_seq, subject, budget_attempts, budget_spent
  FROM message_failure
 WHERE failure_id = $1 AND consumer = $2 AND state = 'retrying'
   FOR UPDATE`

// retry tries one recorded event, through the same inbox and handlers as the
// stream. The row is claimed by its lock and its state, so that two operators
// and a retry that meet make one attempt.
func (c *Consumer) retry(ctx context.Context, id int64) error {
	var stored storedFailure
	var span trace.Span // opened once the event could be read: its trace is in it
	defer func() {
		if span != nil {
			span.End()
		}
	}()
	for attempt := 0; ; attempt++ {
		err := c.retryOnce(ctx, id, &stored, &span)
		if err == nil || errors.Is(err, errPlaceLost) || errors.Is(err, pgx.ErrNoRows) {
			if errors.Is(err, pgx.ErrNoRows) { // someone else has settled it
				return nil
			}
			return err
		}
		switch v := judge(err); {
		case v == again: // the database is away: no attempt was made
			return err
		case v == contention && attempt < contentionRetries:
			wait(ctx, backoff(attempt, 20*time.Millisecond, time.Second))
		default:
			return c.recordRetry(trace.ContextWithSpan(ctx, span), stored, v, err)
		}
	}
}

const sqlResolve = `
UPDATE message_failure SET state = 'resolved', resolved_at = clock_timestamp(), resolution = $2, attempts = attempts + 1, next_attempt_at = NULL
 WHERE failure_id = $1`

const sqlParkAgain = `
UPDATE message_failure SET state = 'parked', error_class = 'parked', error_code = $2, next_attempt_at = clock_timestamp() + $3::interval
 WHERE failure_id = $1`

func (c *Consumer) retryOnce(ctx context.Context, id int64, stored *storedFailure, span *trace.Span) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.HandlerTimeout)
	defer cancel()
	var it *item
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.place.fence(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sqlTakeFailure, id, c.name)
		if err != nil {
			return fmt.Errorf("take failure %d: %w", id, err)
		}
		if *stored, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[storedFailure]); err != nil {
			return err
		}
		raw, err := c.cfg.PayloadKeys.open(stored.Payload, stored.SealedBy)
		if err != nil {
			return Permanent(Coded("sealed", err))
		}
		if it, _, err = c.openOne(&storedDelivery{from: stored, data: raw}); err != nil {
			return err
		}
		if *span == nil {
			_, *span = c.processing(ctx, []*item{it})
		}
		ctx := trace.ContextWithSpan(ctx, *span)
		behind, err := c.applyWithin(ctx, tx, []*item{it})
		if err != nil {
			return err
		}
		switch {
		case len(behind) > 0 && !it.waiting:
			it.result, it.skipped = "parked", true
			happened(ctx, spanParked, &it.env.EventID, "parked_behind", c.cfg.GapWait)
			_, err = tx.Exec(ctx, sqlParkAgain, id, "parked_behind", c.cfg.GapWait)
		case it.waiting:
			happened(ctx, spanParked, &it.env.EventID, codeGap, c.cfg.GapWait)
			_, err = tx.Exec(ctx, sqlParkAgain, id, codeGap, c.cfg.GapWait)
		default:
			_, err = tx.Exec(ctx, sqlResolve, id, it.result)
		}
		return err
	})
	if err == nil && !it.waiting {
		faults.Hit("failure.after_retry")
		c.circuit.succeeded(effects([]*item{it}))
		c.meters.done(ctx, it)
	}
	return err
}

const sqlRecordRetry = `
UPDATE message_failure SET state = @state, error_class = @class, error_code = @code, error_detail = @detail, error_stack = @stack,
	attempts = attempts + 1, budget_attempts = budget_attempts + 1, budget_spent = budget_spent + @after::interval, last_failed_at = clock_timestamp(),
	next_attempt_at = CASE WHEN @state = 'retrying' THEN clock_timestamp() + @after::interval END,
	due_at = CASE WHEN @state = 'open' THEN clock_timestamp() + @sla::interval END
 WHERE failure_id = @id AND state = 'retrying'`

// recordRetry spends one attempt of the budget. When attempts or time are used
// up, or no retry can help, the row becomes a dead letter.
func (c *Consumer) recordRetry(ctx context.Context, stored storedFailure, v verdict, cause error) error {
	if pause := c.circuit.failing(cause, true); pause > 0 {
		c.opened(ctx, pause, cause)
		return nil // it stays due
	}
	delay, left := c.cfg.schedule().next(stored.BudgetAttempts, stored.BudgetSpent, cause)
	state := stateRetrying
	if v == permanent || !left {
		state = stateOpen
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.HandlerTimeout)
	defer cancel()
	_, err := c.pool.Exec(ctx, sqlRecordRetry, pgx.StrictNamedArgs{"id": stored.FailureID, "state": state, "class": v.class(),
		"code": codeOf(cause), "detail": detailOf(cause), "stack": stackOf(cause), "after": delay, "sla": c.cfg.DeadLetterSLA})
	if err != nil {
		return fmt.Errorf("record attempt: %w", err)
	}
	if state == stateOpen {
		happened(ctx, spanDeadLetter, nil, codeOf(cause), -1)
		c.meters.buried(ctx, codeOf(cause))
		c.cfg.Logger.Error("dead letter: the retry budget is spent", "failure_id", stored.FailureID,
			"attempt", stored.BudgetAttempts+1, "code", codeOf(cause), "error", detailOf(cause))
		return nil
	}
	happened(ctx, spanRetry, nil, codeOf(cause), delay)
	c.meters.retried(ctx, v.class())
	return nil
}
