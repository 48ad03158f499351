package console

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/opsapi"
	"orderpaid/platform/postgres"
)

// Limits of one look at the index: so many orders are asked about in one
// request, and so many requests are made before the next beat.
const (
	indexPage  = 500
	indexPages = 20
)

// watchIndex asks search, once a second, whether it has the paid orders that it
// has not confirmed, until ctx is done. While search is away the answer is late
// and nothing else.
//
// It asks about each order by the event that search must have applied. Reading
// what search has written since the last time would be less to ask, and would
// miss for ever what it writes late: after a freeze, a dead letter or a replay.
func (s *Service) watchIndex(ctx context.Context) error {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	after := ""
	for {
		after = s.confirmIndexed(ctx, after)
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
	}
}

// confirmIndexed asks about the orders that come after one in the order of
// their ids, and returns where to go on: at "" again, when it has come to the
// end. So the many that search cannot have yet do not keep it from the others.
func (s *Service) confirmIndexed(ctx context.Context, after string) string {
	for range indexPages {
		waiting, err := readUnindexed(ctx, s.pool, after, indexPage)
		if err != nil || len(waiting) == 0 {
			return ""
		}
		found, err := s.ops["search"].EffectsOf(ctx, waiting)
		if err != nil {
			return after
		}
		err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error { return confirm(ctx, tx, found) })
		if err != nil {
			return after
		}
		if len(waiting) < indexPage {
			return ""
		}
		after = waiting[len(waiting)-1].AggregateID
	}
	return after
}

// sqlUnindexed reads the payments of which search has not confirmed that they
// are in the index. An order that was paid under two event ids is asked about
// by the first.
const sqlUnindexed = `
SELECT e.event_id, e.kind, p.order_id AS aggregate_id, e.aggregate_version, '' AS key
  FROM order_progress p
  JOIN LATERAL (SELECT event_id, kind, aggregate_version FROM audit_event
                 WHERE order_id = p.order_id AND kind = 'OrderPaid.v1' ORDER BY occurred_at LIMIT 1) e ON true
 WHERE p.paid_at IS NOT NULL AND p.indexed_at IS NULL AND p.order_id > $1
 ORDER BY p.order_id LIMIT $2`

func readUnindexed(ctx context.Context, pool *pgxpool.Pool, after string, limit int) ([]opsapi.EventRef, error) {
	rows, err := pool.Query(ctx, sqlUnindexed, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read orders that are not indexed: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[opsapi.EventRef])
}

// sqlConfirm notes which orders are in the index, and counts those that were
// not known to be. Orders are written in the order of their ids, as sqlRecord
// writes them.
const sqlConfirm = `
WITH confirmed AS (
	INSERT INTO order_progress (order_id, indexed_at)
	SELECT order_id, min(at) FROM unnest(@orders::text[], @times::timestamptz[]) AS c(order_id, at) GROUP BY order_id ORDER BY order_id
	    ON CONFLICT (order_id) DO UPDATE SET indexed_at = excluded.indexed_at WHERE order_progress.indexed_at IS NULL
	RETURNING order_id
), counted AS (
	SELECT count(*) AS n FROM confirmed
), total AS (
	INSERT INTO event_total (kind, events) SELECT 'indexed', n FROM counted WHERE n > 0
	    ON CONFLICT (kind) DO UPDATE SET events = event_total.events + excluded.events
)
INSERT INTO event_minute (minute, kind, events) SELECT date_trunc('minute', now()), 'indexed', n FROM counted WHERE n > 0
    ON CONFLICT (minute, kind) DO UPDATE SET events = event_minute.events + excluded.events`

// confirm notes orders that search has confirmed.
func confirm(ctx context.Context, tx pgx.Tx, found []opsapi.Effect) error {
	if len(found) == 0 {
		return nil
	}
	orders, times := make([]string, len(found)), make([]time.Time, len(found))
	for i, effect := range found {
		orders[i], times[i] = effect.Key, effect.At
	}
	if _, err := tx.Exec(ctx, sqlConfirm, pgx.StrictNamedArgs{"orders": orders, "times": times}); err != nil {
		return fmt.Errorf("note %d confirmations: %w", len(found), err)
	}
	return nil
}
