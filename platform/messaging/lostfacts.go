package messaging

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// lostFactsEvery is how often a lane looks for rows of the queue without facts.
const lostFactsEvery = time.Minute

// sqlSetLostAside moves rows whose fact is gone from the head of the queue to
// those that a person must look at. A partition was dropped with what was
// unpublished in it, or a database was restored in parts: there is nothing to
// publish, and as many of them as a lane reads of a shard would keep all that
// stands behind them from ever being read. Facts and rows commit together, so a
// fact that is not seen beside its row does not come.
//
// Rows are deleted by their places, as in sqlMark, and for the same reason.
const sqlSetLostAside = `
WITH lost AS MATERIALIZED (
	SELECT s.shard, q.place
	  FROM unnest($1::smallint[]) AS s(shard)
	 CROSS JOIN LATERAL (SELECT p.ctid AS place, p.event_id FROM message_outbox_pending p WHERE p.shard = s.shard ORDER BY p.id LIMIT 100) q
	 WHERE NOT EXISTS (SELECT 1 FROM message_outbox o WHERE o.event_id = q.event_id)
), fence AS (
	SELECT l.shard FROM relay_lease l
	 WHERE l.owner = $2 AND l.lease_until > clock_timestamp() AND l.shard = ANY($1::smallint[])
	   FOR SHARE
), moved AS (
	DELETE FROM message_outbox_pending p
	 WHERE p.ctid = ANY (ARRAY(SELECT lost.place FROM lost JOIN fence ON fence.shard = lost.shard))
	RETURNING p.shard, p.id, p.event_id, p.attempts
)
INSERT INTO message_outbox_held (shard, id, event_id, aggregate_type, aggregate_id, state, attempts, available_at, last_error)
SELECT shard, id, event_id, '', '', 'failed', attempts, 'infinity', 'its fact is missing' FROM moved
RETURNING event_id`

// setLostAside looks again at once while it finds some.
func (l *relayLane) setLostAside(ctx context.Context, batch batchLease) error {
	if time.Since(l.looked) < lostFactsEvery {
		return nil
	}
	rows, err := l.conn.Query(ctx, sqlSetLostAside, batch.shards, l.cfg.Name)
	if err != nil {
		return fmt.Errorf("set rows without facts aside: %w", err)
	}
	lost, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return fmt.Errorf("set rows without facts aside: %w", err)
	}
	if len(lost) == 0 {
		l.looked = time.Now()
		return nil
	}
	l.meters.held(ctx, slices.Repeat([]string{"failed"}, len(lost)))
	l.cfg.Logger.Error("events of the queue have no fact: they cannot be published, and wait for a person who brings the facts back",
		"events", len(lost), "first_event_id", lost[0])
	return nil
}
