package messaging

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What retention does to rows rather than to partitions, a thousand at a time,
// so that no transaction holds its locks for long.

// retainRows erases payloads and forgets what has no partition.
func retainRows(ctx context.Context, owner *pgxpool.Pool, cfg RetentionConfig, report *RetentionReport) error {
	desk := NewDeadLetters(owner, nil)
	erased, err := untilNone(func() (int, error) { return desk.ErasePayloads(ctx, cfg.Failures) })
	report.Erased += erased
	if err != nil {
		return err
	}
	if err := refuseAbandoned(ctx, owner, cfg.Failures); err != nil {
		return err
	}
	erased, err = InBatches(ctx, owner, sqlEraseReplayItems, cfg.Failures)
	report.Erased += erased
	if err != nil {
		return fmt.Errorf("erase payloads of replays: %w", err)
	}
	if report.Forgotten, err = InBatches(ctx, owner, sqlForgetOther, cfg.Inbox); err != nil {
		return fmt.Errorf("forget rows of the inbox: %w", err)
	}
	return nil
}

// InBatches executes a statement that changes at most a bounded number of rows
// older than keep, its only parameter, until there are none. It returns how
// many it changed.
func InBatches(ctx context.Context, owner *pgxpool.Pool, sql string, keep time.Duration) (changed int, err error) {
	return untilNone(func() (int, error) {
		tag, err := owner.Exec(ctx, sql, keep)
		return int(tag.RowsAffected()), err
	})
}

func untilNone(step func() (int, error)) (sum int, err error) {
	for {
		n, err := step()
		sum += n
		if err != nil || n == 0 {
			return sum, err
		}
	}
}

const sqlErasePayloads = `
UPDATE message_failure SET payload = NULL, headers = '{}', sealed_by = NULL
 WHERE failure_id IN (SELECT failure_id FROM message_failure
                       WHERE state IN ('resolved', 'discarded') AND payload IS NOT NULL AND resolved_at < clock_timestamp() - $1::interval
                       ORDER BY failure_id LIMIT 1000)`

// ErasePayloads removes the payloads of failures that were settled longer ago
// than keep. The rows and the actions on them stay. It returns how many it
// erased, at most 1000 at a time.
func (d *DeadLetters) ErasePayloads(ctx context.Context, keep time.Duration) (int, error) {
	tag, err := d.pool.Exec(ctx, sqlErasePayloads, keep)
	if err != nil {
		return 0, fmt.Errorf("erase payloads: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

const sqlAbandonedReplays = `
SELECT replay_id FROM message_replay
 WHERE state IN ('awaiting_approval', 'ready', 'stopped') AND created_at < clock_timestamp() - $1::interval`

// refuseAbandoned ends replays that nobody works on any more, so that the
// payloads of their events can be erased in their time. That is recorded like
// any action.
func refuseAbandoned(ctx context.Context, owner *pgxpool.Pool, keep time.Duration) error {
	rows, err := owner.Query(ctx, sqlAbandonedReplays, keep)
	if err != nil {
		return fmt.Errorf("look for abandoned replays: %w", err)
	}
	abandoned, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return fmt.Errorf("look for abandoned replays: %w", err)
	}
	replays := NewReplays(owner)
	who := Actor{Name: "retention", Reason: fmt.Sprintf("nobody has finished it within %v", keep)}
	for _, id := range abandoned {
		if err := replays.move(ctx, id, who, "refuse", "refused", nil, "awaiting_approval", "ready", "stopped"); err != nil {
			return err
		}
	}
	return nil
}

// sqlEraseReplayItems leaves the items: what was replayed, and what came of it,
// stays on record.
const sqlEraseReplayItems = `
UPDATE message_replay_item SET payload = '', sealed_by = NULL
 WHERE (replay_id, position) IN (
	SELECT i.replay_id, i.position FROM message_replay r
	  JOIN message_replay_item i ON i.replay_id = r.replay_id
	 WHERE r.state IN ('done', 'refused') AND r.ended_at < clock_timestamp() - $1::interval AND i.payload <> ''
	 LIMIT 1000)`

// sqlForgetOther goes by the time at which an event was applied: its id is of
// a month that has no partition, so it says nothing.
const sqlForgetOther = `
DELETE FROM message_inbox_other WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM message_inbox_other WHERE processed_at < clock_timestamp() - $1::interval LIMIT 1000))`
