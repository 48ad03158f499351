package console

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// A Fact is an event as the trail keeps it.
type Fact struct {
	messaging.Meta
	Kind    string // OrderPaid.v1
	OrderID string // the order that it is about, or empty
}

// sqlRecord adds events to the trail and what they say to the orders' progress
// and to the counts, in one statement: none of the three can miss one.
//
// Orders are written in the order of their ids, so that two transactions would
// wait for each other in turn and never in a circle.
const sqlRecord = `
WITH heard AS (
	INSERT INTO audit_event (event_id, kind, producer, aggregate_type, aggregate_id, aggregate_version,
	                         order_id, correlation_id, causation_id, occurred_at)
	SELECT event_id, kind, producer, aggregate_type, aggregate_id, aggregate_version, order_id, correlation_id, causation_id, occurred_at
	  FROM unnest(@event_ids::uuid[], @kinds::text[], @producers::text[], @aggregate_types::text[], @aggregate_ids::text[], @versions::bigint[],
	              @order_ids::text[], @correlations::text[], @causations::text[], @occurred::timestamptz[])
	       AS e(event_id, kind, producer, aggregate_type, aggregate_id, aggregate_version, order_id, correlation_id, causation_id, occurred_at)
	    ON CONFLICT (event_id) DO NOTHING
	RETURNING kind, order_id, aggregate_version, occurred_at
), progress AS (
	INSERT INTO order_progress (order_id, paid_at, credited_at, mailed_at, mail_failed_at, payments, credits, mails)
	SELECT order_id,
	       min(occurred_at) FILTER (WHERE kind = 'OrderPaid.v1'),
	       min(occurred_at) FILTER (WHERE kind = 'PointsAwarded.v1'),
	       min(occurred_at) FILTER (WHERE kind = 'NotificationSent.v1'),
	       min(occurred_at) FILTER (WHERE kind = 'NotificationFailed.v1'),
	       (count(*) FILTER (WHERE kind = 'OrderPaid.v1'))::int,
	       (count(*) FILTER (WHERE kind = 'PointsAwarded.v1'))::int,
	       (count(*) FILTER (WHERE kind = 'NotificationSent.v1'))::int
	  FROM heard
	 WHERE order_id <> '' AND kind IN ('OrderPaid.v1', 'PointsAwarded.v1', 'NotificationSent.v1', 'NotificationFailed.v1')
	 GROUP BY order_id ORDER BY order_id
	    ON CONFLICT (order_id) DO UPDATE SET
	       paid_at = least(order_progress.paid_at, excluded.paid_at),
	       credited_at = least(order_progress.credited_at, excluded.credited_at),
	       mailed_at = least(order_progress.mailed_at, excluded.mailed_at),
	       mail_failed_at = least(order_progress.mail_failed_at, excluded.mail_failed_at),
	       payments = order_progress.payments + excluded.payments,
	       credits = order_progress.credits + excluded.credits,
	       mails = order_progress.mails + excluded.mails
), totals AS (
	INSERT INTO event_total (kind, events) SELECT kind, count(*) FROM heard GROUP BY kind ORDER BY kind
	    ON CONFLICT (kind) DO UPDATE SET events = event_total.events + excluded.events
)
INSERT INTO event_minute (minute, kind, events)
SELECT date_trunc('minute', now()), kind, count(*) FROM heard GROUP BY kind ORDER BY kind
    ON CONFLICT (minute, kind) DO UPDATE SET events = event_minute.events + excluded.events`

// record writes events that were heard.
func record(ctx context.Context, tx pgx.Tx, facts []Fact) error {
	n := len(facts)
	ids, kinds, producers := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	types, aggregates, versions := make([]string, n), make([]string, n), make([]int64, n)
	orders, correlations, causations, occurred := make([]string, n), make([]string, n), make([]string, n), make([]time.Time, n)
	for i, f := range facts {
		ids[i], kinds[i], producers[i] = f.EventID, f.Kind, f.Producer
		types[i], aggregates[i], versions[i] = f.AggregateType, f.AggregateID, f.AggregateVersion
		orders[i], correlations[i], causations[i], occurred[i] = f.OrderID, f.CorrelationID, f.CausationID, f.OccurredAt
	}
	_, err := tx.Exec(ctx, sqlRecord, pgx.StrictNamedArgs{
		"event_ids": ids, "kinds": kinds, "producers": producers, "aggregate_types": types, "aggregate_ids": aggregates,
		"versions": versions, "order_ids": orders, "correlations": correlations, "causations": causations, "occurred": occurred,
	})
	if err != nil {
		return fmt.Errorf("record %d events: %w", n, err)
	}
	return nil
}

// sqlHeard reads which events the trail holds.
const sqlHeard = `
SELECT event_id, kind, order_id, aggregate_version, recorded_at FROM audit_event WHERE event_id = ANY($1) ORDER BY event_id`

// effectsOf tells reconciliation which events are in the trail. Without it
// every event that the inbox has would count as applied without an effect.
func (s *Service) effectsOf(ctx context.Context, events []opsapi.EventRef) ([]opsapi.Effect, error) {
	ids := make([]uuid.UUID, len(events))
	for i, ev := range events {
		ids[i] = ev.EventID
	}
	rows, err := s.pool.Query(ctx, sqlHeard, ids)
	if err != nil {
		return nil, fmt.Errorf("read the trail: %w", err)
	}
	effects, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (opsapi.Effect, error) {
		e := opsapi.Effect{What: "audit_event"}
		err := row.Scan(&e.EventID, &e.State, &e.Key, &e.Version, &e.At)
		e.ID = e.EventID.String()
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the trail: %w", err)
	}
	return effects, nil
}

// sqlTally reads the board's part that the trail knows. Repeats are taken off
// the totals, because those count events and the board counts orders. A
// duplicate is a second entry of the ledger or a second mail of an order: one
// that was stated under two event ids is still one.
const sqlTally = `
SELECT coalesce((SELECT events FROM event_total WHERE kind = 'OrderPaid.v1'), 0) - coalesce(r.payments, 0) AS paid,
       coalesce((SELECT events FROM event_total WHERE kind = 'PointsAwarded.v1'), 0) - coalesce(r.credits, 0) AS credited,
       coalesce((SELECT events FROM event_total WHERE kind = 'NotificationSent.v1'), 0) - coalesce(r.mails, 0) AS mailed,
       coalesce((SELECT events FROM event_total WHERE kind = 'indexed'), 0) AS indexed,
       coalesce((SELECT sum(effects - 1) FROM (
         SELECT count(DISTINCT (e.aggregate_id, e.aggregate_version)) AS effects
           FROM order_progress p JOIN audit_event e USING (order_id)
          WHERE (p.credits > 1 OR p.mails > 1) AND e.kind IN ('PointsAwarded.v1', 'NotificationSent.v1')
          GROUP BY order_id, e.kind) d), 0)::bigint AS duplicated,
       (SELECT count(*) FROM (SELECT FROM order_progress
         WHERE paid_at IS NOT NULL AND (credited_at IS NULL OR indexed_at IS NULL OR mailed_at IS NULL AND mail_failed_at IS NULL) LIMIT 100000) u) AS unfinished,
       coalesce((SELECT extract(epoch FROM clock_timestamp() - min(paid_at)) FROM order_progress
         WHERE paid_at IS NOT NULL AND (credited_at IS NULL OR indexed_at IS NULL OR mailed_at IS NULL AND mail_failed_at IS NULL)), 0)::float8 AS oldest_seconds
  FROM (SELECT sum(greatest(payments - 1, 0)) AS payments, sum(greatest(credits - 1, 0)) AS credits, sum(greatest(mails - 1, 0)) AS mails
          FROM order_progress WHERE payments > 1 OR credits > 1 OR mails > 1) r`

func readTally(ctx context.Context, pool *pgxpool.Pool) (Tally, error) {
	rows, err := pool.Query(ctx, sqlTally)
	if err != nil {
		return Tally{}, fmt.Errorf("read board: %w", err)
	}
	t, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Tally])
	if err != nil {
		return Tally{}, fmt.Errorf("read board: %w", err)
	}
	return t, nil
}

// sqlMinutes reads the last half hour, minutes without events included.
const sqlMinutes = `
SELECT m.minute,
       coalesce(sum(e.events) FILTER (WHERE e.kind = 'OrderPaid.v1'), 0)::bigint AS paid,
       coalesce(sum(e.events) FILTER (WHERE e.kind = 'PointsAwarded.v1'), 0)::bigint AS credited,
       coalesce(sum(e.events) FILTER (WHERE e.kind = 'NotificationSent.v1'), 0)::bigint AS mailed,
       coalesce(sum(e.events) FILTER (WHERE e.kind = 'indexed'), 0)::bigint AS indexed
  FROM generate_series(date_trunc('minute', now()) - interval '29 minutes', date_trunc('minute', now()), interval '1 minute') AS m(minute)
  LEFT JOIN event_minute e ON e.minute = m.minute
 GROUP BY m.minute ORDER BY m.minute`

func readMinutes(ctx context.Context, pool *pgxpool.Pool) ([]Minute, error) {
	rows, err := pool.Query(ctx, sqlMinutes)
	if err != nil {
		return nil, fmt.Errorf("read minutes: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Minute])
}

// sqlOverdue reads orders that should have been finished by now, the oldest
// first: those for whose missing effects somebody must have an explanation.
const sqlOverdue = `
SELECT order_id, credited_at IS NULL AS uncredited, mailed_at IS NULL AND mail_failed_at IS NULL AS unmailed, indexed_at IS NULL AS unindexed
  FROM order_progress
 WHERE paid_at IS NOT NULL AND (credited_at IS NULL OR indexed_at IS NULL OR mailed_at IS NULL AND mail_failed_at IS NULL)
   AND paid_at < clock_timestamp() - $1::interval
 ORDER BY paid_at LIMIT $2`

func readOverdue(ctx context.Context, pool *pgxpool.Pool, age time.Duration, limit int) ([]Overdue, error) {
	rows, err := pool.Query(ctx, sqlOverdue, age, limit)
	if err != nil {
		return nil, fmt.Errorf("read overdue orders: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Overdue])
}

// sqlRecent reads the newest orders that were paid, for people who look for
// an example.
const sqlRecent = `SELECT order_id FROM order_progress WHERE paid_at IS NOT NULL ORDER BY order_id DESC LIMIT $1`

func readRecent(ctx context.Context, pool *pgxpool.Pool, limit int) ([]string, error) {
	rows, err := pool.Query(ctx, sqlRecent, limit)
	if err != nil {
		return nil, fmt.Errorf("read recent orders: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
