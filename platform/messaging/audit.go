package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// An Actor is who does something, and why. Both are kept for ever.
type Actor struct{ Name, Reason string }

func (a Actor) check() error {
	if a.Name == "" || a.Reason == "" {
		return ErrNoReason
	}
	return nil
}

// ErrNoReason: an action without a name or without a reason.
var ErrNoReason = errors.New("an action needs a person's name and a reason")

// An Action is what a person did.
type Action struct {
	ActionID int64           `json:"action_id,string"`
	At       time.Time       `json:"at"`
	Actor    string          `json:"actor"`
	Action   string          `json:"action"`
	Target   string          `json:"target"`
	Reason   string          `json:"reason"`
	Before   json.RawMessage `json:"before"`
	After    json.RawMessage `json:"after"`
}

// RecordAction notes in tx what a person does to something of a service's own,
// with what was before and after; target names it, as "payment_exception 12".
// It commits or fails together with the change. It returns [ErrNoReason] if the
// actor has no name or no reason.
func RecordAction(ctx context.Context, tx pgx.Tx, actor Actor, action, target string, before, after map[string]any) error {
	if err := actor.check(); err != nil {
		return err
	}
	return act(ctx, tx, actor, action, target, before, after)
}

const sqlAct = `INSERT INTO operator_action (actor, action, target, reason, before, after) VALUES ($1, $2, $3, $4, $5, $6)`

func act(ctx context.Context, tx pgx.Tx, actor Actor, action, target string, before, after map[string]any) error {
	if _, err := tx.Exec(ctx, sqlAct, actor.Name, action, target, actor.Reason, before, after); err != nil {
		return fmt.Errorf("record action: %w", err)
	}
	return nil
}

const actionColumns = `SELECT action_id, at, actor, action, target, reason, before, after FROM operator_action`

// ActionsOn returns what people did to these targets, such as "failure 12",
// the oldest first.
func (h *History) ActionsOn(ctx context.Context, targets ...string) ([]Action, error) {
	return h.actions(ctx, ` WHERE target = ANY($1) ORDER BY action_id`, targets)
}

// Actions returns a page of everything that people did here, the newest first.
// before is the last id of the page before, or 0.
func (h *History) Actions(ctx context.Context, before int64, limit int) ([]Action, error) {
	return h.actions(ctx, ` WHERE $1::bigint = 0 OR action_id < $1::bigint ORDER BY action_id DESC LIMIT $2`, before, limit)
}

// ActionsOnEvents returns what people did to events of the outbox: published
// again, or released. events are ids.
func (h *History) ActionsOnEvents(ctx context.Context, events ...string) ([]Action, error) {
	return h.actions(ctx, ` WHERE target = 'outbox' AND (after->'queued' ?| $1 OR after->'events' ?| $1) ORDER BY action_id`, events)
}

func (h *History) actions(ctx context.Context, where string, args ...any) ([]Action, error) {
	rows, err := h.pool.Query(ctx, actionColumns+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read actions: %w", err)
	}
	actions, err := pgx.CollectRows(rows, pgx.RowToStructByName[Action])
	if err != nil {
		return nil, fmt.Errorf("read actions: %w", err)
	}
	return actions, nil
}
