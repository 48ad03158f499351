package search

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// The end of a rebuild: the live consumer stands still while the slots change
// places. Queries are answered all the time.

// sqlPause takes the live consumer's place, whoever has it. Each of its
// transactions locks this row first: one that is about to commit is waited
// for, and those after it find that the place is another's.
const sqlPause = `
INSERT INTO consumer_lease (consumer, owner, epoch, lease_until) VALUES ($1, $2, 1, clock_timestamp() + $3::interval)
ON CONFLICT (consumer) DO UPDATE SET owner = excluded.owner, epoch = consumer_lease.epoch + 1, lease_until = excluded.lease_until
RETURNING epoch`

func (r *Rebuild) pause(ctx context.Context) (epoch int64, err error) {
	err = r.pool.QueryRow(ctx, sqlPause, indexer, r.owner, pauseTerm).Scan(&epoch)
	return epoch, err
}

const sqlKeepPause = `
UPDATE consumer_lease SET lease_until = clock_timestamp() + $4::interval
 WHERE consumer = $1 AND owner = $2 AND epoch = $3 AND lease_until > clock_timestamp()`

// keepPause prolongs the pause after each page, so that what came since may be
// more than can be caught up with in one term. Outside of a pause it does
// nothing.
func (r *Rebuild) keepPause(ctx context.Context) error {
	if r.epoch == 0 {
		return nil
	}
	tag, err := r.pool.Exec(ctx, sqlKeepPause, indexer, r.owner, r.epoch, pauseTerm)
	if err != nil {
		return fmt.Errorf("prolong the pause: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errPauseEnded
	}
	return nil
}

const sqlResume = `UPDATE consumer_lease SET lease_until = '-infinity' WHERE consumer = $1 AND owner = $2 AND epoch = $3`

// resume frees the place. If that fails, it becomes free when the pause's term
// is over.
func (r *Rebuild) resume(ctx context.Context, epoch int64) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := r.pool.Exec(ctx, sqlResume, indexer, r.owner, epoch); err != nil {
		slog.WarnContext(ctx, "the live consumer goes on only when the pause has run out", "term", pauseTerm, "error", err)
	}
}

var errPauseEnded = errors.New("the pause of the live consumer ended before the switch")

const sqlStillPaused = `
SELECT count(*) FROM (
	SELECT FROM consumer_lease
	 WHERE consumer = $1 AND owner = $2 AND epoch = $3 AND lease_until > clock_timestamp()
	   FOR UPDATE
) AS ours`

// The statements of the switch; $1 is the live consumer, $2 the rebuild's.
const (
	sqlHandOverProgress = `
INSERT INTO message_progress (consumer, aggregate_type, aggregate_id, last_version)
SELECT $1, aggregate_type, aggregate_id, last_version FROM message_progress WHERE consumer = $2
ON CONFLICT (consumer, aggregate_type, aggregate_id)
DO UPDATE SET last_version = excluded.last_version WHERE excluded.last_version > message_progress.last_version`

	// What the live consumer has recorded stays: it says when an event first had its effect.
	sqlHandOverInbox = `
INSERT INTO message_inbox (consumer, event_id, aggregate_id, processed_at, result)
SELECT $1, n.event_id, n.aggregate_id, n.processed_at, CASE n.result WHEN 'applied' THEN 'rebuilt' ELSE n.result END
  FROM message_inbox n
 WHERE n.consumer = $2
   AND NOT EXISTS (SELECT FROM message_inbox l WHERE l.consumer = $1 AND l.event_id = n.event_id)`

	// A dead letter that could be applied this time is none any more.
	sqlResolveFailures = `
UPDATE message_failure f
   SET state = 'resolved', resolved_at = clock_timestamp(), resolution = 'rebuilt', next_attempt_at = NULL
 WHERE f.consumer = $1 AND f.state IN ('retrying', 'parked', 'open')
   AND EXISTS (SELECT FROM message_inbox n WHERE n.consumer = $2 AND n.event_id = f.event_id)`

	// One that the live consumer has never met is its own from now on: if the
	// database was lost, it may not meet it again.
	sqlHandOverFailures = `
UPDATE message_failure f SET consumer = $1
 WHERE f.consumer = $2 AND f.state IN ('retrying', 'parked', 'open')
   AND NOT EXISTS (SELECT FROM message_failure l WHERE l.consumer = $1 AND l.dedupe_key = f.dedupe_key)
   AND NOT EXISTS (SELECT FROM message_inbox l WHERE l.consumer = $1 AND l.event_id = f.event_id)`
)

const sqlCountFailed = `SELECT count(*) FROM message_failure WHERE consumer = $1 AND state IN ('retrying', 'parked', 'open')`

const sqlSwitch = `UPDATE search_index SET live_slot = 1 - live_slot, indexed_as_of = greatest(indexed_as_of, $1)`

// switchOver makes the other slot the live one, together with everything that
// says how far it is.
func (r *Rebuild) switchOver(ctx context.Context, tx pgx.Tx, epoch int64) error {
	var ours int
	if err := tx.QueryRow(ctx, sqlStillPaused, indexer, r.owner, epoch).Scan(&ours); err != nil {
		return fmt.Errorf("check the pause: %w", err)
	}
	if ours == 0 {
		return errPauseEnded
	}
	if _, err := r.otherSlot(ctx, tx, time.Time{}); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, sqlCountFailed, rebuilder).Scan(&r.Failed); err != nil {
		return fmt.Errorf("count failures: %w", err)
	}
	r.Failed += r.left
	for _, sql := range []string{sqlHandOverProgress, sqlHandOverInbox, sqlResolveFailures, sqlHandOverFailures} {
		if _, err := tx.Exec(ctx, sql, indexer, rebuilder); err != nil {
			return fmt.Errorf("hand over what was applied: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, sqlSwitch, unlessZero(r.newest)); err != nil {
		return fmt.Errorf("swap the slots: %w", err)
	}
	return nil
}

// The lock waits for a switch whose answer was lost and that is still under way.
const sqlLiveSlot = `SELECT live_slot FROM search_index FOR SHARE`

// whetherSwitched finds out about a switch whose commit got no answer: nil if
// it has happened.
func (r *Rebuild) whetherSwitched(ctx context.Context) error {
	var live int16
	if err := r.pool.QueryRow(ctx, sqlLiveSlot).Scan(&live); err != nil {
		return fmt.Errorf("find out whether the new index is live: %w", err)
	}
	if live != r.slot {
		return errPauseEnded
	}
	return nil
}
