package notify

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// What operators see of this service beside its messaging. A task is the effect
// of a payment; its end is a fact, which must have an event. Nothing here shows
// an address.

// newConsumer returns the service's consumer with its handlers. What it writes
// leads to a mail, so a replay to it needs to allow that.
func newConsumer(pool *pgxpool.Pool, sub messaging.Subscriber, s *Service, cfg messaging.ConsumerConfig) *messaging.Consumer {
	cfg.ExternalEffects = true
	c := messaging.NewConsumer(sender, pool, sub, cfg)
	s.register(c)
	return c
}

// Sandbox returns a consumer like the service's own for a copy of its
// database, where it may apply a replay with nobody watching. Nothing is sent:
// the mails that it asks for stay in the copy.
func Sandbox(pool *pgxpool.Pool, sub messaging.Subscriber, cfg messaging.ConsumerConfig) (*messaging.Consumer, error) {
	return newConsumer(pool, sub, NewService(pool, func() {}), cfg), nil
}

func (s *Service) own() opsapi.Own {
	return opsapi.Own{Evidence: s.evidence, Facts: s.facts, Effects: s.effects, EffectsOf: s.effectsOf, Invariants: s.invariants,
		Unfinished: s.unfinished}
}

const taskColumns = `
SELECT notification_id, order_id, user_id, template, state, code, attempts, due_at, created_at, updated_at, version, event_id
  FROM delivery_task`

// A taskRow is what operators see of a task.
type taskRow struct {
	Task
	version int64
	effect  opsapi.Effect
}

func (s *Service) taskRows(ctx context.Context, sql string, args ...any) ([]taskRow, error) {
	rows, err := s.pool.Query(ctx, taskColumns+sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read mails: %w", err)
	}
	tasks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t taskRow, err error) {
		err = row.Scan(&t.ID, &t.OrderID, &t.UserID, &t.Template, &t.State, &t.Code, &t.Attempts, &t.DueAt, &t.CreatedAt, &t.UpdatedAt,
			&t.version, &t.effect.EventID)
		t.fillEffect()
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read mails: %w", err)
	}
	return tasks, nil
}

func (t *taskRow) fillEffect() {
	e := &t.effect
	e.What, e.ID, e.Key, e.State, e.At, e.Cursor = "mail", t.ID, t.OrderID, string(t.State), t.UpdatedAt, t.ID
	e.Says = map[string]string{"template": string(t.Template)}
	if t.State != Sent { // the server has put it off so often; beside a sent mail, 0 would read as never tried
		e.Says["attempts"] = strconv.Itoa(t.Attempts)
	}
	if t.Code != "" {
		e.Says["code"] = t.Code
	}
	if !t.State.Over() {
		e.Says["due_at"] = t.DueAt.UTC().Format("2006-01-02T15:04:05Z")
	}
}

// evidence knows mails, orders and users. For a user it only says which orders
// there are.
func (s *Service) evidence(ctx context.Context, key string) (own opsapi.OwnEvidence, err error) {
	tasks, err := s.taskRows(ctx, ` WHERE notification_id = $1 OR order_id = $1 OR user_id = $1 ORDER BY notification_id DESC LIMIT 10`, key)
	for _, t := range tasks {
		own.Keys = append(own.Keys, t.OrderID)
		if t.OrderID == key || t.ID == key {
			own.Aggregates = append(own.Aggregates, t.ID)
			own.Effects = append(own.Effects, t.effect)
		}
	}
	return own, err
}

// tasksIn goes by the id, which holds the time of the wish for the mail: rows
// of transactions that are still open have ids of now, and a later look with
// an overlapping window finds them. A task that ends long after it was wished
// for is in the window of the wish.
func (s *Service) tasksIn(ctx context.Context, w opsapi.Window, more string) ([]taskRow, error) {
	return s.taskRows(ctx, ` WHERE notification_id >= @since AND notification_id < @until AND notification_id > @after`+more+`
 ORDER BY notification_id LIMIT @limit`, pgx.StrictNamedArgs{"since": opsapi.IDFloor(taskPrefix, w.Since),
		"until": opsapi.IDFloor(taskPrefix, w.Until), "after": w.After, "limit": w.Limit})
}

// facts are the tasks that are over: their last version was stated.
func (s *Service) facts(ctx context.Context, w opsapi.Window) ([]opsapi.Fact, error) {
	tasks, err := s.tasksIn(ctx, w, ` AND version > 0 AND state IN ('sent', 'failed', 'unknown')`)
	facts := make([]opsapi.Fact, len(tasks))
	for i, t := range tasks {
		kind := NotificationFailed{}.Kind()
		if t.State == Sent {
			kind = NotificationSent{}.Kind()
		}
		facts[i] = opsapi.Fact{Kind: kind.String(), AggregateID: t.ID, AggregateVersion: t.version, Key: t.OrderID, At: t.UpdatedAt, Cursor: t.ID}
	}
	return facts, err
}

func (s *Service) effects(ctx context.Context, w opsapi.Window) ([]opsapi.Effect, error) {
	tasks, err := s.tasksIn(ctx, w, "")
	effects := make([]opsapi.Effect, len(tasks))
	for i, t := range tasks {
		effects[i] = t.effect
	}
	return effects, err
}

// effectsOf finds an order's mail whichever event it was asked for: a payment
// that is announced under two event ids leads to one mail.
func (s *Service) effectsOf(ctx context.Context, events []opsapi.EventRef) ([]opsapi.Effect, error) {
	orders := make([]string, len(events))
	for i, ev := range events {
		orders[i] = ev.Key
	}
	tasks, err := s.taskRows(ctx, ` WHERE order_id = ANY($1::text[])`, orders)
	if err != nil {
		return nil, err
	}
	byOrder := make(map[string]opsapi.Effect, len(tasks))
	for _, t := range tasks {
		byOrder[t.OrderID] = t.effect
	}
	var effects []opsapi.Effect
	for _, ev := range events {
		if effect, found := byOrder[ev.Key]; found {
			effect.EventID = ev.EventID
			effects = append(effects, effect)
		}
	}
	return effects, nil
}

const (
	// A sender's lease is seconds, and a mail that is put off is due later: one
	// that is due for so long has no sender.
	sqlStuckMails = `
SELECT notification_id, count(*) OVER () FROM delivery_task
 WHERE state IN ('queued', 'sending') AND due_at < clock_timestamp() - interval '10 minutes' ORDER BY due_at LIMIT 20`

	sqlUnknownMails = `
SELECT notification_id, count(*) OVER () FROM delivery_task WHERE state = 'unknown' ORDER BY notification_id DESC LIMIT 20`
)

func (s *Service) invariants(ctx context.Context) ([]opsapi.Invariant, error) {
	stuck, err := opsapi.CheckInvariant(ctx, s.pool, "mails_are_sent", "mails should have been sent ten minutes ago: is there a mail server?", sqlStuckMails)
	if err != nil {
		return nil, err
	}
	unknown, err := opsapi.CheckInvariant(ctx, s.pool, "mails_have_an_outcome", "mails may or may not have been delivered: shopctl doubts list shows them, and settle ends it", sqlUnknownMails)
	return []opsapi.Invariant{stuck, unknown}, err
}

// sqlUnfinishedMails reads two small indexes, each no further than the limit.
const sqlUnfinishedMails = `
SELECT (SELECT count(*) FROM (SELECT FROM delivery_task WHERE state IN ('queued', 'sending') LIMIT $1) waiting)
     + (SELECT count(*) FROM (SELECT FROM delivery_task WHERE state = 'unknown' LIMIT $1) in_doubt)`

// unfinished counts the mails that are not sent, and those of which a person
// must say whether they were.
func (s *Service) unfinished(ctx context.Context) (n int64, err error) {
	if err := s.pool.QueryRow(ctx, sqlUnfinishedMails, opsapi.MaxUnfinished).Scan(&n); err != nil {
		return 0, fmt.Errorf("count unfinished mails: %w", err)
	}
	return n, nil
}
