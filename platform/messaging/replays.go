package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/postgres"
)

// Replays is what people do with replays that exist.
type Replays struct{ pool *pgxpool.Pool }

// NewReplays returns the replays of one database.
func NewReplays(pool *pgxpool.Pool) *Replays { return &Replays{pool} }

// A Replay is one row of message_replay with its progress.
type Replay struct {
	ReplayID      uuid.UUID       `json:"replay_id"`
	Consumer      string          `json:"consumer"`
	Source        string          `json:"source"`
	Filter        json.RawMessage `json:"filter"`
	State         string          `json:"state"`
	AllowExternal bool            `json:"allow_external"`
	PerSecond     int             `json:"per_second"`
	Items         int             `json:"items"`
	Done          int             `json:"done"`
	RequestedBy   string          `json:"requested_by"`
	Reason        string          `json:"reason"`
	ApprovedBy    *string         `json:"approved_by"`
	Report        json.RawMessage `json:"report"`
	CreatedAt     time.Time       `json:"created_at"`
	StartedAt     *time.Time      `json:"started_at"`
	EndedAt       *time.Time      `json:"ended_at"`
}

const sqlReplays = `
SELECT r.replay_id, r.consumer, r.source, r.filter, r.state, r.allow_external, r.per_second, r.items,
       (SELECT count(*)::int FROM message_replay_item i WHERE i.replay_id = r.replay_id AND i.done_at IS NOT NULL) AS done,
       r.requested_by, r.reason, r.approved_by, r.report, r.created_at, r.started_at, r.ended_at
  FROM message_replay r
 WHERE $1::uuid IS NULL OR r.replay_id = $1
 ORDER BY r.created_at DESC LIMIT 100`

// List returns the latest hundred replays, newest first.
func (r *Replays) List(ctx context.Context) ([]Replay, error) { return r.find(ctx, nil) }

// ErrNoReplay: there is no replay with this id.
var ErrNoReplay = errors.New("there is no replay with this id")

// Show returns one replay.
func (r *Replays) Show(ctx context.Context, id uuid.UUID) (Replay, error) {
	found, err := r.find(ctx, &id)
	if err != nil {
		return Replay{}, err
	}
	if len(found) == 0 {
		return Replay{}, fmt.Errorf("replay %s: %w", id, ErrNoReplay)
	}
	return found[0], nil
}

func (r *Replays) find(ctx context.Context, id *uuid.UUID) ([]Replay, error) {
	rows, err := r.pool.Query(ctx, sqlReplays, id)
	if err != nil {
		return nil, fmt.Errorf("read replays: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Replay])
}

// ErrReplayState: the replay is not in a state that allows this.
var ErrReplayState = errors.New("the replay's state does not allow this")

// ErrOwnApproval: whoever asked for a replay cannot approve it.
var ErrOwnApproval = errors.New("a replay must be approved by someone else than who asked for it")

const sqlMoveReplay = `
UPDATE message_replay SET state = $3, approved_by = coalesce($4, approved_by),
	started_at = CASE WHEN $3 = 'running' THEN coalesce(started_at, clock_timestamp()) ELSE started_at END,
	ended_at = CASE WHEN $3 = 'refused' THEN clock_timestamp() END
 WHERE replay_id = $1 AND state = ANY($2)`

// Approve lets a large replay be started, by someone else than who asked for it.
// It returns [ErrTooOld] if the inbox has meanwhile forgotten one of its events.
func (r *Replays) Approve(ctx context.Context, id uuid.UUID, actor Actor) error {
	replay, err := r.Show(ctx, id)
	if err != nil {
		return err
	}
	if replay.RequestedBy == actor.Name {
		return ErrOwnApproval
	}
	return r.move(ctx, id, actor, "approve", "ready", &actor.Name, "awaiting_approval")
}

// Refuse ends a replay that waits for approval.
func (r *Replays) Refuse(ctx context.Context, id uuid.UUID, actor Actor) error {
	return r.move(ctx, id, actor, "refuse", "refused", nil, "awaiting_approval")
}

// Start has the consumer work on the replay, from the first item that is open.
// It returns [ErrTooOld] like Approve.
func (r *Replays) Start(ctx context.Context, id uuid.UUID, actor Actor) error {
	return r.move(ctx, id, actor, "start", "running", nil, "ready", "stopped")
}

// Stop ends the work after the chunk that is under way.
func (r *Replays) Stop(ctx context.Context, id uuid.UUID, actor Actor) error {
	return r.move(ctx, id, actor, "stop", "stopped", nil, "running")
}

// sqlForgotten finds an event that is still to be brought and that the inbox no
// longer remembers. Only the ids of version 7 hold a time.
const sqlForgotten = `
SELECT i.event_id FROM message_replay_item i, message_horizon h
 WHERE i.replay_id = $1 AND i.done_at IS NULL AND i.expected <> 'unusable'
   AND substr(i.event_id::text, 15, 1) = '7' AND i.event_id < message_uuid_floor(greatest(h.inbox_since, 'epoch'))
 ORDER BY i.position LIMIT 1`

// remembered refuses what planning refuses: days may lie between a plan, its
// approval and its start, and retention goes on meanwhile.
func remembered(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	var forgotten uuid.UUID
	switch err := tx.QueryRow(ctx, sqlForgotten, id).Scan(&forgotten); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("compare with the inbox's horizon: %w", err)
	}
	return tooOld(forgotten)
}

func (r *Replays) move(ctx context.Context, id uuid.UUID, actor Actor, action, to string, approver *string, from ...string) error {
	if err := actor.check(); err != nil {
		return err
	}
	err := postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlMoveReplay, id, from, to, approver)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return ErrReplayState
		}
		if to == "ready" || to == "running" {
			if err := remembered(ctx, tx, id); err != nil {
				return err
			}
		}
		return act(ctx, tx, actor, action, replayTarget(id), map[string]any{"state": from}, map[string]any{"state": to})
	})
	if err != nil {
		return fmt.Errorf("%s replay %s: %w", action, id, err)
	}
	return nil
}
