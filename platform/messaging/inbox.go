package messaging

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The inbox answers one question: has this consumer applied this event? The
// answer is a unique key in the transaction that applies it, not a look before
// the leap. Pattern: idempotent consumer,
// https://microservices.io/patterns/communication-style/idempotent-consumer.html

// sqlAdmit claims events for this transaction. A row that is there already
// means that an earlier transaction committed the effect. If another
// transaction is about to commit the same event, the statement waits for it.
const sqlAdmit = `
INSERT INTO message_inbox (consumer, event_id, aggregate_id, result)
SELECT @consumer, e.event_id, e.aggregate_id, e.result
  FROM unnest(@event_ids::uuid[], @aggregate_ids::text[], @results::text[]) AS e(event_id, aggregate_id, result)
ON CONFLICT (consumer, event_id) DO NOTHING
RETURNING event_id`

// admit writes the inbox rows of a group and returns the events that are new,
// in the order to apply them. gaps are those that wait for an earlier version;
// they get no row.
func (c *Consumer) admit(ctx context.Context, tx pgx.Tx, items []*item) (fresh, gaps []*item, err error) {
	now := time.Now()
	for _, it := range items {
		if e := it.env.ExpiresAt; !e.IsZero() && now.After(e) {
			it.result, it.skipped = "expired", true
		}
	}
	if c.everyVersion {
		if items, gaps, err = c.gate(ctx, tx, items); err != nil {
			return nil, nil, err
		}
	}
	if len(items) == 0 {
		return nil, gaps, nil
	}
	sorted := slices.Clone(items)
	slices.SortFunc(sorted, func(a, b *item) int { return bytes.Compare(a.env.EventID[:], b.env.EventID[:]) })
	ids, aggregates, results := make([]uuid.UUID, len(sorted)), make([]string, len(sorted)), make([]string, len(sorted))
	for i, it := range sorted {
		ids[i], aggregates[i], results[i] = it.env.EventID, it.env.AggregateID, it.result
	}
	rows, err := tx.Query(ctx, sqlAdmit, pgx.StrictNamedArgs{"consumer": c.name, "event_ids": ids, "aggregate_ids": aggregates, "results": results})
	if err != nil {
		return nil, nil, fmt.Errorf("write inbox: %w", err)
	}
	admitted, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, nil, fmt.Errorf("write inbox: %w", err)
	}
	if len(admitted) == len(items) {
		return items, gaps, nil
	}
	isNew := make(map[uuid.UUID]bool, len(admitted))
	for _, id := range admitted {
		isNew[id] = true
	}
	fresh = make([]*item, 0, len(admitted))
	for _, it := range items {
		if isNew[it.env.EventID] {
			fresh = append(fresh, it)
		} else {
			it.result, it.skipped = "duplicate", true
		}
	}
	return fresh, gaps, nil
}

const sqlLockProgress = `
SELECT p.aggregate_type, p.aggregate_id, p.last_version
  FROM message_progress p
  JOIN unnest(@types::text[], @ids::text[]) AS a(type, id) ON p.aggregate_type = a.type AND p.aggregate_id = a.id
 WHERE p.consumer = @consumer
   FOR UPDATE OF p`

const sqlSaveProgress = `
INSERT INTO message_progress (consumer, aggregate_type, aggregate_id, last_version)
SELECT @consumer, a.type, a.id, a.version
  FROM unnest(@types::text[], @ids::text[], @versions::bigint[]) AS a(type, id, version)
ON CONFLICT (consumer, aggregate_type, aggregate_id) DO UPDATE SET last_version = excluded.last_version`

// gate applies the version rule: behind is stale, the next is applied, and
// what skips a version waits. admitted get an inbox row, each aggregate's in
// version order.
func (c *Consumer) gate(ctx context.Context, tx pgx.Tx, items []*item) (admitted, gaps []*item, err error) {
	last, err := c.lockProgress(ctx, tx, items)
	if err != nil {
		return nil, nil, err
	}
	changed := map[aggregateKey]int64{}
	admitted = make([]*item, 0, len(items))
	for _, it := range inVersionOrder(items) {
		key, version := it.aggregate(), it.env.AggregateVersion
		switch {
		case version <= last[key]:
			it.result, it.skipped = "stale", true
		case version == last[key]+1:
			last[key], changed[key] = version, version
		default:
			it.waiting = true
			gaps = append(gaps, it)
			continue
		}
		admitted = append(admitted, it)
	}
	return admitted, gaps, c.saveProgress(ctx, tx, changed)
}

func (c *Consumer) lockProgress(ctx context.Context, tx pgx.Tx, items []*item) (map[aggregateKey]int64, error) {
	seen := make(map[aggregateKey]int64, len(items))
	types, ids := aggregatesOf(items)
	rows, err := tx.Query(ctx, sqlLockProgress, pgx.StrictNamedArgs{"consumer": c.name, "types": types, "ids": ids})
	if err != nil {
		return nil, fmt.Errorf("read progress: %w", err)
	}
	var key aggregateKey
	var version int64
	if _, err := pgx.ForEachRow(rows, []any{&key.Type, &key.ID, &version}, func() error { seen[key] = version; return nil }); err != nil {
		return nil, fmt.Errorf("read progress: %w", err)
	}
	return seen, nil
}

func (c *Consumer) saveProgress(ctx context.Context, tx pgx.Tx, changed map[aggregateKey]int64) error {
	if len(changed) == 0 {
		return nil
	}
	var types, ids []string
	var versions []int64
	for key, version := range changed {
		types, ids, versions = append(types, key.Type), append(ids, key.ID), append(versions, version)
	}
	args := pgx.StrictNamedArgs{"consumer": c.name, "types": types, "ids": ids, "versions": versions}
	if _, err := tx.Exec(ctx, sqlSaveProgress, args); err != nil {
		return fmt.Errorf("save progress: %w", err)
	}
	if !c.troubled.Load() {
		return nil
	}
	if _, err := tx.Exec(ctx, sqlReleaseNext, args); err != nil {
		return fmt.Errorf("release what waited for these versions: %w", err)
	}
	return nil
}

// inVersionOrder sorts each aggregate's events by version and leaves the
// aggregates where they are among each other.
func inVersionOrder(items []*item) []*item {
	places := map[aggregateKey][]int{}
	for i, it := range items {
		places[it.aggregate()] = append(places[it.aggregate()], i)
	}
	out := slices.Clone(items)
	for _, at := range places {
		if len(at) == 1 {
			continue
		}
		events := make([]*item, len(at))
		for i, place := range at {
			events[i] = items[place]
		}
		slices.SortStableFunc(events, func(a, b *item) int { return int(min(1, max(-1, a.env.AggregateVersion-b.env.AggregateVersion))) })
		for i, place := range at {
			out[place] = events[i]
		}
	}
	return out
}

const sqlRecordResults = `
UPDATE message_inbox i SET result = e.result
  FROM unnest(@event_ids::uuid[], @results::text[]) AS e(event_id, result)
 WHERE i.consumer = @consumer AND i.event_id = e.event_id`

// recordResults writes what handlers said with [Event.Result].
func (c *Consumer) recordResults(ctx context.Context, tx pgx.Tx, items []*item) error {
	var ids []uuid.UUID
	var results []string
	for _, it := range items {
		if !it.skipped && it.result != "applied" {
			ids, results = append(ids, it.env.EventID), append(results, truncate(it.result, MaxIDBytes))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, sqlRecordResults, pgx.StrictNamedArgs{"consumer": c.name, "event_ids": ids, "results": results}); err != nil {
		return fmt.Errorf("record results: %w", err)
	}
	return nil
}
