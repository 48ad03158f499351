package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/postgres"
)

// A Backfill asks the owner of an aggregate for the events between two
// versions, both exclusive, oldest first, as they were staged. complete says
// that the answer is the owner's whole truth: a version that is not among the
// events does not exist. Without it, an empty answer only means "not yet".
type Backfill func(ctx context.Context, aggregateType, aggregateID string, after, before int64) (events [][]byte, complete bool, err error)

// A gap is an aggregate of which a later version has come and an earlier one
// has not.
type gap struct {
	AggregateType string
	AggregateID   string
	Last          int64         // the version that was applied last
	Waiting       int64         // the lowest one that waits
	Spent         time.Duration // in waiting for it
}

const sqlGaps = `
SELECT f.aggregate_type, f.aggregate_id, coalesce(max(p.last_version), 0) AS last, min(f.aggregate_version) AS waiting,
       max(f.budget_spent) AS spent
  FROM message_failure f
  LEFT JOIN message_progress p ON p.consumer = f.consumer AND p.aggregate_type = f.aggregate_type AND p.aggregate_id = f.aggregate_id
 WHERE f.consumer = $1 AND f.state = 'parked' AND f.error_code = 'version_gap' AND f.next_attempt_at <= clock_timestamp()
 GROUP BY f.aggregate_type, f.aggregate_id
 ORDER BY spent DESC LIMIT 20`

const sqlGapLater = `
UPDATE message_failure SET next_attempt_at = clock_timestamp() + $4::interval, budget_spent = budget_spent + $4::interval
 WHERE consumer = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND state = 'parked' AND error_code = 'version_gap'`

// sqlGapWaits spends nothing: the owner has answered, and it is this consumer
// that takes no events now. Its pause must not make dead letters of events that
// nothing is wrong with.
const sqlGapWaits = `
UPDATE message_failure SET next_attempt_at = clock_timestamp() + $4::interval
 WHERE consumer = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND state = 'parked' AND error_code = 'version_gap'`

const sqlGapOpen = `
UPDATE message_failure SET state = 'open', due_at = clock_timestamp() + $4::interval, last_failed_at = clock_timestamp()
 WHERE consumer = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND state = 'parked' AND error_code = 'version_gap'`

// fillGaps fetches what is missing from its owner. A gap that stays for longer
// than the retry budget becomes a dead letter; until then it is looked at
// again and again, with growing pauses.
func (c *Consumer) fillGaps(ctx context.Context) (filled bool, err error) {
	rows, err := c.pool.Query(ctx, sqlGaps, c.name)
	if err != nil {
		return false, fmt.Errorf("look for gaps: %w", err)
	}
	gaps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[gap])
	if err != nil {
		return false, fmt.Errorf("look for gaps: %w", err)
	}
	for _, g := range gaps {
		err := c.fillGap(ctx, g)
		switch {
		case err == nil:
			filled = true
			continue
		case errors.Is(err, errPlaceLost) || ctx.Err() != nil:
			return filled, err
		}
		if err := c.putOffGap(ctx, g, err); err != nil {
			return filled, fmt.Errorf("put off a gap: %w", err)
		}
	}
	return filled, nil
}

func (c *Consumer) putOffGap(ctx context.Context, g gap, cause error) error {
	statement, pause := sqlGapLater, min(c.cfg.GapWait+g.Spent/2, c.cfg.RetryDelayMax)
	if errors.Is(cause, errHandedBack) {
		statement = sqlGapWaits
	} else {
		c.cfg.Logger.Warn("a version is missing", "aggregate_type", g.AggregateType, "after", g.Last, "before", g.Waiting, "waited", g.Spent, "error", detailOf(cause))
		if g.Spent > c.cfg.RetryBudget {
			statement, pause = sqlGapOpen, c.cfg.DeadLetterSLA
		}
	}
	_, err := c.pool.Exec(ctx, statement, c.name, g.AggregateType, g.AggregateID, pause)
	return err
}

var errStillMissing = errors.New("the owner does not have it yet")

// fillGap applies the missing events as if they had been delivered. Versions
// that the owner says do not exist are passed over.
func (c *Consumer) fillGap(ctx context.Context, g gap) error {
	if g.Last+1 >= g.Waiting { // it has come meanwhile
		return c.closeGap(ctx, g, g.Last)
	}
	if c.cfg.Backfill == nil {
		return errStillMissing
	}
	asking, cancel := context.WithTimeout(ctx, c.cfg.HandlerTimeout)
	defer cancel()
	events, complete, err := c.cfg.Backfill(asking, g.AggregateType, g.AggregateID, g.Last, g.Waiting)
	if err != nil {
		return fmt.Errorf("ask the owner: %w", err)
	}
	if len(events) == 0 && !complete {
		return errStillMissing
	}
	missing := make([]*storedDelivery, len(events))
	for i, event := range events {
		missing[i] = &storedDelivery{from: &storedFailure{Stream: "backfill"}, data: event}
	}
	if err := c.applyStored(ctx, missing); err != nil {
		return err
	}
	if !complete {
		return nil // what was applied has released what comes next
	}
	return c.closeGap(ctx, g, g.Waiting-1)
}

const sqlPassOver = `
INSERT INTO message_progress (consumer, aggregate_type, aggregate_id, last_version) VALUES ($1, $2, $3, $4)
ON CONFLICT (consumer, aggregate_type, aggregate_id)
DO UPDATE SET last_version = greatest(message_progress.last_version, excluded.last_version)`

// closeGap lets the waiting event go: nothing is missing before it any more.
// It does nothing while an earlier version is itself unresolved here.
func (c *Consumer) closeGap(ctx context.Context, g gap, upTo int64) error {
	c.work.Lock()
	defer c.work.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.HandlerTimeout)
	defer cancel()
	return postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.place.fence(ctx, tx); err != nil {
			return err
		}
		var earlier int
		if err := tx.QueryRow(ctx, sqlCountEarlier, c.name, g.AggregateType, g.AggregateID, g.Waiting).Scan(&earlier); err != nil {
			return fmt.Errorf("look for earlier failures: %w", err)
		}
		if earlier > 0 {
			_, err := tx.Exec(ctx, sqlGapLater, c.name, g.AggregateType, g.AggregateID, c.cfg.RetryDelayMax)
			return err
		}
		if _, err := tx.Exec(ctx, sqlPassOver, c.name, g.AggregateType, g.AggregateID, upTo); err != nil {
			return fmt.Errorf("pass over missing versions: %w", err)
		}
		_, err := tx.Exec(ctx, sqlReleaseNext, pgx.StrictNamedArgs{"consumer": c.name,
			"types": []string{g.AggregateType}, "ids": []string{g.AggregateID}, "versions": []int64{g.Waiting - 1}})
		return err
	})
}

const sqlCountEarlier = `
SELECT count(*) FROM message_failure
 WHERE consumer = $1 AND aggregate_type = $2 AND aggregate_id = $3 AND aggregate_version < $4 AND blocking AND state IN ('retrying', 'parked', 'open')`
