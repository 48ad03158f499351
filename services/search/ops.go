package search

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/strictjson"
)

// What operators see of this service beside its messaging. It states nothing,
// so it has no facts; its documents are effects of the order's events and carry
// the version of the last one.

// newConsumer returns the service's consumer with its handlers.
func newConsumer(pool *pgxpool.Pool, sub messaging.Subscriber, s *Service, cfg messaging.ConsumerConfig) *messaging.Consumer {
	c := messaging.NewConsumer(indexer, pool, sub, cfg)
	s.register(c)
	return c
}

// Sandbox returns a consumer like the service's own for a copy of its
// database, where it may apply a replay with nobody watching.
func Sandbox(pool *pgxpool.Pool, sub messaging.Subscriber, cfg messaging.ConsumerConfig) (*messaging.Consumer, error) {
	return newConsumer(pool, sub, NewService(pool), cfg), nil
}

func (s *Service) own() opsapi.Own {
	return opsapi.Own{Evidence: s.evidence, Effects: s.effects, EffectsOf: s.effectsOf}
}

const documentVersions = `
SELECT order_id, user_id, state, version, created_at, greatest(created_at, paid_at, refunded_at, cancelled_at)
  FROM order_document
 WHERE slot = (SELECT live_slot FROM search_index)`

type documentRow struct {
	OrderID, UserID, State string
	Version                int64
	CreatedAt, ChangedAt   time.Time
}

func (s *Service) documents(ctx context.Context, sql string, args ...any) ([]documentRow, error) {
	rows, err := s.pool.Query(ctx, documentVersions+sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read documents: %w", err)
	}
	docs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[documentRow])
	if err != nil {
		return nil, fmt.Errorf("read documents: %w", err)
	}
	return docs, nil
}

func (d documentRow) effect() opsapi.Effect {
	return opsapi.Effect{What: "document", ID: d.OrderID, Key: d.OrderID, State: d.State, Version: d.Version, At: d.ChangedAt,
		Cursor: d.CreatedAt.UTC().Format(time.RFC3339Nano) + " " + d.OrderID}
}

// evidence knows orders and users. For a user it only says which orders there
// are.
func (s *Service) evidence(ctx context.Context, key string) (own opsapi.OwnEvidence, err error) {
	docs, err := s.documents(ctx, ` AND order_id = $1`, key)
	if err == nil && len(docs) == 0 {
		docs, err = s.documents(ctx, ` AND user_id = $1 ORDER BY created_at DESC, order_id DESC LIMIT 10`, key)
	}
	for _, d := range docs {
		own.Keys = append(own.Keys, d.OrderID)
		if d.OrderID == key {
			own.Effects = append(own.Effects, d.effect())
		}
	}
	return own, err
}

// effects goes by when the orders were placed. An order of which an event comes
// late may appear in a part of the list that was read already; a later look
// with an overlapping window finds it.
func (s *Service) effects(ctx context.Context, w opsapi.Window) ([]opsapi.Effect, error) {
	at, id, _ := strings.Cut(w.After, " ")
	after, err := time.Parse(time.RFC3339Nano, at)
	if w.After == "" {
		after, err = w.Since, nil
	}
	if err != nil || !strictjson.Storable(after) {
		return nil, opsapi.ErrBadCursor
	}
	docs, err := s.documents(ctx, ` AND created_at >= @since AND created_at < @until AND (created_at, order_id) > (@after::timestamptz, @id::text)
 ORDER BY created_at, order_id LIMIT @limit`, pgx.StrictNamedArgs{"since": w.Since, "until": w.Until, "after": after, "id": id, "limit": w.Limit})
	effects := make([]opsapi.Effect, len(docs))
	for i, d := range docs {
		effects[i] = d.effect()
	}
	return effects, err
}

// effectsOf finds the documents that are at least as new as the event.
func (s *Service) effectsOf(ctx context.Context, events []opsapi.EventRef) ([]opsapi.Effect, error) {
	orders := make([]string, len(events))
	for i, ev := range events {
		orders[i] = ev.AggregateID
	}
	docs, err := s.documents(ctx, ` AND order_id = ANY($1::text[])`, orders)
	if err != nil {
		return nil, err
	}
	byOrder := make(map[string]documentRow, len(docs))
	for _, d := range docs {
		byOrder[d.OrderID] = d
	}
	var effects []opsapi.Effect
	for _, ev := range events {
		if d, found := byOrder[ev.AggregateID]; found && d.Version >= ev.AggregateVersion {
			effect := d.effect()
			effect.EventID = ev.EventID
			effects = append(effects, effect)
		}
	}
	return effects, nil
}
