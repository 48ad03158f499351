package search

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/postgres"
)

// A Rebuild makes the index anew: after a change of tokenize.go, after a bug in
// how events were applied, or after the database was lost. The live slot goes
// on serving and taking events; the other slot is filled by the very handlers
// that feed the live one, under the name of a consumer of its own.
//
//	catch up   stream, first to last ──► other slot
//	carry over live documents that the stream no longer tells of
//	pause      the live consumer's place is taken: nothing is written any more
//	catch up   what came since
//	carry over
//	switch     one transaction: slots, progress, inbox, failures
//	resume     the live consumer goes on, on the new slot
//
// No event is lost and none is applied twice, because the switch hands over the
// rebuild's progress and inbox together with its documents: an event that the
// new slot has already is a duplicate when the live consumer gets it, and an
// event that it has not is one that the live consumer has still to get.
//
// A crash at any point leaves the live slot as it is. The pause then ends with
// its lease, and the next rebuild clears what is left.
type Rebuild struct {
	Events  int64 // read from the stream
	Carried int64 // documents taken over from the live slot, with their text cut anew
	Failed  int64 // events that could not be applied, or whose predecessors the stream does not hold

	pool     *pgxpool.Pool
	reader   *natsbroker.Reader
	consumer *messaging.Consumer
	owner    string // this rebuild, among all that ever were
	slot     int16  // the one that it fills
	epoch    int64  // of the pause, while there is one
	newest   time.Time
	left     int64 // events that even message_failure had no room for
}

// rebuilder is the consumer that feeds the other slot.
const rebuilder = "search-indexer-rebuild"

const (
	rebuildBatch = 1000             // events or documents in one transaction
	pauseTerm    = 30 * time.Second // after which the live consumer goes on if the rebuild has died
	pauses       = 5                // attempts to finish within one
)

// NewRebuild returns a rebuild on the database of pool. Statements may take
// minutes on a large index, so the pool should allow them to.
func NewRebuild(pool *pgxpool.Pool, broker *natsbroker.Broker) *Rebuild {
	r := &Rebuild{pool: pool, owner: rand.Text()}
	r.consumer = messaging.NewConsumer(rebuilder, pool, nil, messaging.ConsumerConfig{
		Group: rebuildBatch,
		// What fails here is counted and handed over with the rest: there is no release to wait for.
		CircuitAfter: math.MaxInt,
		GapWait:      24 * time.Hour, // a version that the stream does not hold will not come: nobody is to look for it
	})
	(&Service{pool: pool, slot: r.otherSlot}).register(r.consumer)
	r.reader = broker.Reader(r.consumer.Subscription().Kinds, 1)
	return r
}

// Run rebuilds the index and returns when the new one is live. If it fails or
// ctx is done before that, the old one stays.
func (r *Rebuild) Run(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return fmt.Errorf("begin rebuild: %w", err)
	}
	if err := r.fill(ctx); err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, sqlAnalyze); err != nil {
		return fmt.Errorf("gather statistics: %w", err)
	}
	slog.InfoContext(ctx, "the new index is filled", "events", r.Events, "carried", r.Carried)
	for attempt := 1; ; attempt++ {
		err := r.finish(ctx)
		if errors.Is(err, postgres.ErrUnknownOutcome) {
			err = r.whetherSwitched(ctx)
		}
		if err == nil {
			break
		}
		again := errors.Is(err, errPauseEnded) || postgres.Classify(err) == postgres.Transient
		if !again || attempt == pauses || ctx.Err() != nil {
			return err
		}
		slog.WarnContext(ctx, "the switch did not succeed; once more", "attempt", attempt, "error", err)
	}
	if err := r.tidy(ctx); err != nil { // the new index is live all the same
		slog.WarnContext(ctx, "the old slot was not emptied; the next rebuild does it", "error", err)
	}
	return nil
}

// sqlAnalyze tells the planner which words are rare before the first query
// depends on it. It does nothing for a role that neither owns the table nor has
// been granted MAINTAIN (PostgreSQL 17); autovacuum then does it, a minute later.
const sqlAnalyze = `ANALYZE order_document`

const sqlBeginRebuild = `UPDATE search_rebuild SET owner = $1, started_at = now()`

// begin makes this rebuild the one that may write to the other slot, and
// empties it. An older rebuild that still runs is refused from here on.
func (r *Rebuild) begin(ctx context.Context) error {
	return postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlBeginRebuild, r.owner); err != nil {
			return fmt.Errorf("register: %w", err)
		}
		var err error
		if r.slot, err = r.otherSlot(ctx, tx, time.Time{}); err != nil {
			return err
		}
		return r.empty(ctx, tx)
	})
}

// tidy gives the disk space of the old slot back, unless a newer rebuild has
// begun to fill it.
func (r *Rebuild) tidy(ctx context.Context) error {
	return postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error { return r.empty(ctx, tx) })
}

const (
	sqlForgetProgress = `DELETE FROM message_progress WHERE consumer = $1`
	sqlForgetInbox    = `DELETE FROM message_inbox WHERE consumer = $1`
	sqlEmptySlot0     = `TRUNCATE order_document_0`
	sqlEmptySlot1     = `TRUNCATE order_document_1`

	// Rows of message_failure are evidence: they are closed and never deleted.
	sqlDiscardFailures = `
UPDATE message_failure
   SET state = 'discarded', resolved_at = clock_timestamp(), resolution = 'the rebuild has ended', next_attempt_at = NULL
 WHERE consumer = $1 AND state IN ('retrying', 'parked', 'open')`
)

// empty clears the slot that is not live, and what its consumer remembers.
func (r *Rebuild) empty(ctx context.Context, tx pgx.Tx) error {
	slot, err := r.otherSlot(ctx, tx, time.Time{})
	if err != nil {
		return err
	}
	for _, sql := range []string{sqlForgetProgress, sqlForgetInbox, sqlDiscardFailures} {
		if _, err := tx.Exec(ctx, sql, rebuilder); err != nil {
			return fmt.Errorf("forget what a rebuild has applied: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, [...]string{sqlEmptySlot0, sqlEmptySlot1}[slot]); err != nil {
		return fmt.Errorf("empty slot %d: %w", slot, err)
	}
	return nil
}

// The lock lasts until the transaction ends, so a newer rebuild waits for what
// this one is about to commit before it empties the slot.
const sqlMayRebuild = `
SELECT (1 - i.live_slot)::smallint
  FROM search_rebuild r CROSS JOIN search_index i
 WHERE r.owner = $1
   FOR SHARE OF r`

var errSuperseded = errors.New("a newer rebuild has taken over")

// otherSlot is the slotFunc of a rebuild.
func (r *Rebuild) otherSlot(ctx context.Context, tx pgx.Tx, newest time.Time) (slot int16, err error) {
	err = tx.QueryRow(ctx, sqlMayRebuild, r.owner).Scan(&slot)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errSuperseded
	}
	if err != nil {
		return 0, fmt.Errorf("find the slot to rebuild: %w", err)
	}
	if newest.After(r.newest) {
		r.newest = newest
	}
	return slot, nil
}

// fill brings the other slot to where the stream and the live slot are.
func (r *Rebuild) fill(ctx context.Context) error {
	if err := r.catchUp(ctx); err != nil {
		return fmt.Errorf("catch up with the stream: %w", err)
	}
	if err := r.carryOver(ctx); err != nil {
		return fmt.Errorf("carry documents over: %w", err)
	}
	return nil
}

// catchUp applies what the stream holds, to its end.
func (r *Rebuild) catchUp(ctx context.Context) error {
	for {
		batch, err := r.reader.Next(ctx, rebuildBatch)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return nil
		}
		if err := r.apply(ctx, batch); err != nil {
			return err
		}
		r.Events += int64(len(batch))
		if err := r.keepPause(ctx); err != nil {
			return err
		}
	}
}

// apply hands events to the consumer, and then those that had to wait for one
// of these.
func (r *Rebuild) apply(ctx context.Context, batch []*natsbroker.Stored) error {
	deliveries := make([]messaging.Delivery, len(batch))
	for i, stored := range batch {
		deliveries[i] = stored
	}
	if err := r.consumer.Apply(ctx, deliveries...); err != nil {
		return err
	}
	for _, stored := range batch {
		if !stored.Done() {
			r.left++
		}
	}
	for busy := true; busy; {
		var err error
		if busy, err = r.consumer.RetryDue(ctx); err != nil {
			return err
		}
	}
	// If a newer rebuild has begun, the handlers were refused, which the
	// consumer takes for an error of the events.
	return postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		_, err := r.otherSlot(ctx, tx, time.Time{})
		return err
	})
}

const sqlBehind = `
SELECT l.order_id, l.user_id, l.state, l.items, l.currency, l.exponent, l.total_amount, l.refunded_amount,
       l.created_at, l.paid_at, l.refunded_at, l.cancelled_at, l.version
  FROM order_document l
  LEFT JOIN order_document n ON n.slot = @slot AND n.order_id = l.order_id
 WHERE l.slot = 1 - @slot AND l.order_id > @after AND (n.version IS NULL OR n.version < l.version)
 ORDER BY l.order_id
 LIMIT @limit`

const sqlCarryOver = `
INSERT INTO order_document (slot, order_id, user_id, state, items, currency, exponent, total_amount, refunded_amount,
                            created_at, paid_at, refunded_at, cancelled_at, version, lexemes)
SELECT @slot, l.order_id, l.user_id, l.state, l.items, l.currency, l.exponent, l.total_amount, l.refunded_amount,
       l.created_at, l.paid_at, l.refunded_at, l.cancelled_at, l.version, c.lexemes::tsvector
  FROM unnest(@order_ids::text[], @lexemes::text[]) AS c(order_id, lexemes)
  JOIN order_document l ON l.slot = 1 - @slot AND l.order_id = c.order_id
ON CONFLICT (slot, order_id) DO UPDATE
   SET state = excluded.state, refunded_amount = excluded.refunded_amount, paid_at = excluded.paid_at,
       refunded_at = excluded.refunded_at, cancelled_at = excluded.cancelled_at, version = excluded.version, lexemes = excluded.lexemes
 WHERE excluded.version > order_document.version`

// carryOver copies the live documents that are newer than what the stream told:
// it no longer holds all events of their orders. Their text is cut anew.
func (r *Rebuild) carryOver(ctx context.Context) error {
	for after := ""; ; {
		var docs []Document
		err := postgres.InTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
			docs, err = r.carryPage(ctx, tx, after)
			return err
		})
		if err != nil {
			return err
		}
		r.Carried += int64(len(docs))
		if err := r.keepPause(ctx); err != nil {
			return err
		}
		if len(docs) < rebuildBatch {
			return nil
		}
		after = docs[len(docs)-1].OrderID
	}
}

func (r *Rebuild) carryPage(ctx context.Context, tx pgx.Tx, after string) ([]Document, error) {
	slot, err := r.otherSlot(ctx, tx, time.Time{})
	if err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, sqlBehind, pgx.StrictNamedArgs{"slot": slot, "after": after, "limit": rebuildBatch})
	docs, err := pgx.CollectRows(rows, scanDocument)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	ids, lexemes := make([]string, len(docs)), make([]string, len(docs))
	for i, d := range docs {
		ids[i], lexemes[i] = d.OrderID, vectorOf(d.texts()...)
	}
	_, err = tx.Exec(ctx, sqlCarryOver, pgx.StrictNamedArgs{"slot": slot, "order_ids": ids, "lexemes": lexemes})
	return docs, err
}

// finish pauses the live consumer, brings the other slot to exactly where it
// stopped or beyond, and switches.
func (r *Rebuild) finish(ctx context.Context) error {
	epoch, err := r.pause(ctx)
	if err != nil {
		return fmt.Errorf("pause the live consumer: %w", err)
	}
	r.epoch = epoch
	defer func() {
		r.epoch = 0
		r.resume(context.WithoutCancel(ctx), epoch)
	}()
	if err := r.fill(ctx); err != nil {
		return err
	}
	err = postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error { return r.switchOver(ctx, tx, epoch) })
	if err != nil {
		return fmt.Errorf("switch to the new index: %w", err)
	}
	return nil
}
