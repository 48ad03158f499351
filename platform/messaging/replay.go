package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/faults"
	"orderpaid/platform/postgres"
)

// A replay runs chosen events through one consumer again: the same ids, the
// same inbox, the same handlers. So what was applied stays applied once, and
// what was missed is made up for. Its items are written down before the first
// is applied; the consumer works through them at a bounded rate, and each is
// open or done at any moment, whoever crashes.

// replayHeader marks events that a replay brings, so that traces and metrics
// tell them from live traffic.
const replayHeader = "Shop-Replay-Id"

// What a plan expects of an event.
const (
	expectApply    = "apply"
	expectApplied  = "already_applied"
	expectStale    = "stale"
	expectExternal = "external" // would lead to something outside the database, which was not allowed
	expectUnusable = "unusable"
)

// ErrTooOld: the inbox no longer remembers events of that age, so it could not
// tell whether they were applied.
var ErrTooOld = errors.New("the inbox does not remember events of that age")

// A ReplayRequest says what to bring to a consumer again, and who wants it.
type ReplayRequest struct {
	Source        string          // failures, outbox or stream
	Filter        json.RawMessage // how the events were chosen; kept for the record
	Events        [][]byte        // the envelopes, in the order to apply them
	AllowExternal bool            // also apply what leads to effects outside the database
	PerSecond     int             // defaults to 100
	Actor         Actor
}

// A ReplayPlan is what a replay would do, by the state of the database now.
type ReplayPlan struct {
	Consumer       string         `json:"consumer"`
	Items          int            `json:"items"`
	Expected       map[string]int `json:"expected"` // by outcome
	External       int            `json:"external"` // events whose effect would reach outside
	NeedsApproval  bool           `json:"needs_approval"`
	OldestEventAge time.Duration  `json:"oldest_event_age"`
	rows           []replayRow
}

type replayRow struct {
	env      Envelope
	raw      []byte
	expected string
}

// PlanReplay tells what a replay would do, and changes nothing.
func (c *Consumer) PlanReplay(ctx context.Context, req ReplayRequest) (ReplayPlan, error) {
	plan := ReplayPlan{Consumer: c.name, Items: len(req.Events), Expected: map[string]int{}, NeedsApproval: len(req.Events) > c.cfg.ReplayApproval}
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		var since time.Time
		if err := tx.QueryRow(ctx, `SELECT greatest(inbox_since, 'epoch') FROM message_horizon`).Scan(&since); err != nil {
			return fmt.Errorf("read the inbox's horizon: %w", err)
		}
		return c.planRows(ctx, tx, &plan, req, since)
	})
	if err != nil {
		return ReplayPlan{}, fmt.Errorf("plan replay for %s: %w", c.name, err)
	}
	for _, row := range plan.rows {
		plan.Expected[row.expected]++
		if c.cfg.ExternalEffects && (row.expected == expectApply || row.expected == expectExternal) {
			plan.External++
		}
	}
	return plan, nil
}

func (c *Consumer) planRows(ctx context.Context, tx pgx.Tx, plan *ReplayPlan, req ReplayRequest, since time.Time) error {
	var items []*item
	var ids []uuid.UUID
	for _, raw := range req.Events {
		it, env, err := c.openOne(&storedDelivery{from: &storedFailure{}, data: raw})
		plan.rows = append(plan.rows, replayRow{env: env, raw: raw, expected: expectUnusable})
		items = append(items, it)
		if err != nil {
			continue
		}
		ids = append(ids, env.EventID)
		if made, ok := madeAt(env.EventID); ok {
			plan.OldestEventAge = max(plan.OldestEventAge, time.Since(made))
			if made.Before(since) {
				return tooOld(env.EventID)
			}
		}
	}
	applied, err := c.applied(ctx, tx, ids)
	if err != nil {
		return err
	}
	last := map[aggregateKey]int64{}
	if c.everyVersion {
		usable := make([]*item, 0, len(items))
		for _, it := range items {
			if it != nil {
				usable = append(usable, it)
			}
		}
		if last, err = c.lockProgress(ctx, tx, usable); err != nil {
			return err
		}
	}
	for i, it := range items {
		if it != nil {
			plan.rows[i].expected = c.expect(it, applied, last, req.AllowExternal)
		}
	}
	return nil
}

func (c *Consumer) expect(it *item, applied map[uuid.UUID]bool, last map[aggregateKey]int64, allowExternal bool) string {
	switch {
	case applied[it.env.EventID]:
		return expectApplied
	case c.everyVersion && it.env.AggregateVersion <= last[it.aggregate()]:
		return expectStale
	case c.cfg.ExternalEffects && !allowExternal:
		return expectExternal
	}
	return expectApply
}

// madeAt reads the time that a UUIDv7 holds in its first 48 bits.
func madeAt(id uuid.UUID) (time.Time, bool) {
	if id.Version() != 7 {
		return time.Time{}, false
	}
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms), true
}

// tooOld names the event that is too old, and its age.
func tooOld(id uuid.UUID) error {
	made, _ := madeAt(id)
	return fmt.Errorf("event %s of %v: %w", id, made.UTC(), ErrTooOld)
}

const sqlCreateReplay = `
INSERT INTO message_replay (replay_id, consumer, source, filter, state, allow_external, per_second, items, requested_by, reason)
VALUES (@id, @consumer, @source, @filter, @state, @allow_external, @per_second, @items, @actor, @reason)`

// CreateReplay writes a replay and its items. It does not start it. A replay
// that is larger than [ConsumerConfig.ReplayApproval] waits for a second person.
func (c *Consumer) CreateReplay(ctx context.Context, req ReplayRequest) (uuid.UUID, ReplayPlan, error) {
	if err := req.Actor.check(); err != nil {
		return uuid.Nil, ReplayPlan{}, err
	}
	setDefault(&req.PerSecond, 100)
	if len(req.Filter) == 0 {
		req.Filter = json.RawMessage("{}")
	}
	plan, err := c.PlanReplay(ctx, req)
	if err != nil {
		return uuid.Nil, plan, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, plan, err
	}
	state := "ready"
	if plan.NeedsApproval {
		state = "awaiting_approval"
	}
	err = postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sqlCreateReplay, pgx.StrictNamedArgs{"id": id, "consumer": c.name, "source": req.Source, "filter": req.Filter,
			"state": state, "allow_external": req.AllowExternal, "per_second": req.PerSecond, "items": len(plan.rows),
			"actor": req.Actor.Name, "reason": req.Actor.Reason})
		if err != nil {
			return err
		}
		if err := c.copyItems(ctx, tx, id, plan.rows); err != nil {
			return err
		}
		return act(ctx, tx, req.Actor, "create", replayTarget(id), map[string]any{}, map[string]any{"state": state, "items": len(plan.rows), "expected": plan.Expected})
	})
	if err != nil {
		return uuid.Nil, plan, fmt.Errorf("create replay: %w", err)
	}
	return id, plan, nil
}

func (c *Consumer) copyItems(ctx context.Context, tx pgx.Tx, id uuid.UUID, rows []replayRow) error {
	columns := []string{"replay_id", "position", "event_id", "kind", "aggregate_type", "aggregate_id", "aggregate_version", "expected", "payload", "sealed_by"}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"message_replay_item"}, columns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		row := rows[i]
		payload, sealedBy, err := c.cfg.PayloadKeys.seal(row.raw)
		return []any{id, i, row.env.EventID, row.env.name(), text(row.env.AggregateType), text(row.env.AggregateID),
			row.env.AggregateVersion, row.expected, payload, sealedBy}, err
	}))
	return err
}

func replayTarget(id uuid.UUID) string { return "replay " + id.String() }

const sqlOpenItems = `
SELECT position, event_id, expected, payload, sealed_by FROM message_replay_item
 WHERE replay_id = $1 AND done_at IS NULL ORDER BY position LIMIT $2`

type replayItem struct {
	Position int
	EventID  uuid.UUID
	Expected string
	Payload  []byte
	SealedBy *string
}

// replayChunk applies the next items of a replay, and says how many there were.
func (c *Consumer) replayChunk(ctx context.Context, r runningReplay) (int, error) {
	rows, err := c.pool.Query(ctx, sqlOpenItems, r.ID, min(r.PerSecond, 100))
	if err != nil {
		return 0, err
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[replayItem])
	if err != nil {
		return 0, err
	}
	if len(items) == 0 {
		return 0, c.finishReplay(ctx, r.ID)
	}
	return len(items), c.replayItems(ctx, r, items)
}

// sqlItemsDone takes each item's result from where it is recorded: applied
// events in the inbox, failed ones in message_failure.
const sqlItemsDone = `
UPDATE message_replay_item r SET done_at = clock_timestamp(), result = coalesce(d.skipped,
	CASE WHEN r.expected = 'already_applied' THEN 'already_applied' END,
	(SELECT i.result FROM message_inbox i WHERE i.consumer = $2 AND i.event_id = r.event_id),
	(SELECT f.state FROM message_failure f WHERE f.consumer = $2 AND f.event_id = r.event_id ORDER BY f.failure_id DESC LIMIT 1),
	'unusable')
  FROM unnest($3::integer[], $4::text[]) AS d(position, skipped)
 WHERE r.replay_id = $1 AND r.position = d.position AND r.done_at IS NULL`

// replayItems applies a chunk and then records it as done. A crash in between
// applies it again, which the inbox absorbs; so does a consumer that takes no
// events for a while, in which the chunk stays open.
func (c *Consumer) replayItems(ctx context.Context, r runningReplay, items []replayItem) error {
	var events []*storedDelivery
	positions, skipped := make([]int, len(items)), make([]*string, len(items))
	for i, it := range items {
		positions[i] = it.Position
		raw, err := c.cfg.PayloadKeys.open(it.Payload, it.SealedBy)
		switch {
		case err != nil:
			skipped[i] = ptr("cannot_be_opened")
		case it.Expected == expectUnusable:
			skipped[i] = ptr(expectUnusable)
		case c.cfg.ExternalEffects && !r.AllowExternal && it.Expected != expectApplied:
			skipped[i] = ptr("external_not_allowed")
		case c.forgotten(it.EventID, r.Since): // it was planned while the inbox still knew of it
			skipped[i] = ptr("too_old")
		default:
			events = append(events, &storedDelivery{from: &storedFailure{Stream: "replay"}, data: raw, replay: r.ID.String()})
		}
	}
	if err := c.applyStored(ctx, events); err != nil {
		return err
	}
	faults.Hit("replay.after_apply_before_done")
	if _, err := c.pool.Exec(ctx, sqlItemsDone, r.ID, c.name, positions, skipped); err != nil {
		return fmt.Errorf("record %d replayed events: %w", len(items), err)
	}
	return nil
}

func ptr(s string) *string { return &s }

// sqlFinishReplay compares what was expected with what is there now.
const sqlFinishReplay = `
UPDATE message_replay r SET state = 'done', ended_at = clock_timestamp(), report = (
	SELECT jsonb_build_object('verified_at', clock_timestamp(),
		'outcomes', jsonb_agg(jsonb_build_object('expected', o.expected, 'found', o.result, 'count', o.n) ORDER BY o.expected, o.result),
		'without_effect', sum(o.missing))
	  FROM (SELECT i.expected, i.result, count(*) AS n,
	               count(*) FILTER (WHERE i.expected IN ('apply', 'already_applied', 'stale')
	                 AND NOT EXISTS (SELECT FROM message_inbox b WHERE b.consumer = r.consumer AND b.event_id = i.event_id)) AS missing
	          FROM message_replay_item i WHERE i.replay_id = r.replay_id GROUP BY i.expected, i.result) o)
 WHERE r.replay_id = $1 AND r.state = 'running'`

func (c *Consumer) finishReplay(ctx context.Context, id uuid.UUID) error {
	if _, err := c.pool.Exec(ctx, sqlFinishReplay, id); err != nil {
		return fmt.Errorf("finish replay %s: %w", id, err)
	}
	c.cfg.Logger.Info("replay is done", "replay_id", id)
	return nil
}
