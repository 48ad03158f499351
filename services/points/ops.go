package points

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// What operators see of this service beside its messaging. The facts are the
// entries of the ledger: each must have an event. They are effects as well, of
// the order's events.

// newConsumer returns the service's consumer with its handlers.
func newConsumer(pool *pgxpool.Pool, sub messaging.Subscriber, s *Service, cfg messaging.ConsumerConfig) *messaging.Consumer {
	c := messaging.NewConsumer(awarder, pool, sub, cfg)
	s.register(c)
	return c
}

// Sandbox returns a consumer like the service's own for a copy of its
// database, where it may apply a replay with nobody watching. What it states
// stays in the copy's outbox, which no relay reads.
func Sandbox(pool *pgxpool.Pool, sub messaging.Subscriber, cfg messaging.ConsumerConfig) (*messaging.Consumer, error) {
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "points"})
	if err != nil {
		return nil, err
	}
	return newConsumer(pool, sub, NewService(pool, outbox), cfg), nil
}

func (s *Service) own() opsapi.Own {
	return opsapi.Own{Evidence: s.evidence, Facts: s.facts, Effects: s.effects, EffectsOf: s.effectsOf, Invariants: s.invariants}
}

const entryColumns = `SELECT entry_id, order_id, user_id, kind, refund_id, points, event_id, booked_at FROM points_entry`

// sqlEntriesAbout has an index for each of its conditions.
const sqlEntriesAbout = entryColumns + `
 WHERE entry_id = $1 OR order_id = $1 OR user_id = $1
 ORDER BY entry_id DESC LIMIT 100`

// evidence knows entries, orders and users. For a user it only says which
// orders there are: what became of each is another question.
func (s *Service) evidence(ctx context.Context, key string) (own opsapi.OwnEvidence, err error) {
	entries, err := s.entries(ctx, sqlEntriesAbout, key)
	if err != nil {
		return own, err
	}
	orders := map[string]bool{}
	for _, e := range entries {
		if !orders[e.OrderID] && len(own.Keys) < 10 {
			orders[e.OrderID] = true
			own.Keys = append(own.Keys, e.OrderID)
		}
		if e.OrderID == key || e.ID == key {
			own.Aggregates = append(own.Aggregates, e.ID)
			own.Effects = append(own.Effects, e.effect())
		}
	}
	return own, nil
}

func (s *Service) entries(ctx context.Context, sql string, args ...any) ([]Entry, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	return entries, nil
}

func (e Entry) effect() opsapi.Effect {
	return opsapi.Effect{What: "points_entry", ID: e.ID, Key: e.OrderID, EventID: e.EventID, State: string(e.Kind), At: e.BookedAt,
		Says: map[string]string{"points": strconv.FormatInt(e.Points, 10)}, Cursor: e.ID}
}

// sqlEntriesBetween goes by entry id, which holds the time of its making: rows
// of transactions that are still open have ids of now, and a later look with an
// overlapping window finds them.
const sqlEntriesBetween = entryColumns + `
 WHERE entry_id >= @since AND entry_id < @until AND entry_id > @after
 ORDER BY entry_id LIMIT @limit`

func (s *Service) entriesIn(ctx context.Context, w opsapi.Window) ([]Entry, error) {
	return s.entries(ctx, sqlEntriesBetween, pgx.StrictNamedArgs{"since": opsapi.IDFloor(entryPrefix, w.Since),
		"until": opsapi.IDFloor(entryPrefix, w.Until), "after": w.After, "limit": w.Limit})
}

func (s *Service) facts(ctx context.Context, w opsapi.Window) ([]opsapi.Fact, error) {
	entries, err := s.entriesIn(ctx, w)
	facts := make([]opsapi.Fact, len(entries))
	for i, e := range entries {
		kind := PointsAwarded{}.Kind()
		if e.Kind == Reversal {
			kind = PointsReversed{}.Kind()
		}
		facts[i] = opsapi.Fact{Kind: kind.String(), AggregateID: e.ID, AggregateVersion: 1, Key: e.OrderID, At: e.BookedAt, Cursor: e.ID}
	}
	return facts, err
}

func (s *Service) effects(ctx context.Context, w opsapi.Window) ([]opsapi.Effect, error) {
	entries, err := s.entriesIn(ctx, w)
	effects := make([]opsapi.Effect, len(entries))
	for i, e := range entries {
		effects[i] = e.effect()
	}
	return effects, err
}

const sqlEntriesOf = entryColumns + ` WHERE order_id = ANY($1::text[])`

// effectsOf finds an order's award whichever event it was booked for: a payment
// that is announced under two event ids is awarded once. A refund is known by
// its event.
func (s *Service) effectsOf(ctx context.Context, events []opsapi.EventRef) ([]opsapi.Effect, error) {
	orders := make([]string, len(events))
	for i, ev := range events {
		orders[i] = ev.Key
	}
	entries, err := s.entries(ctx, sqlEntriesOf, orders)
	if err != nil {
		return nil, err
	}
	awards, byEvent := map[string]Entry{}, map[uuid.UUID]Entry{}
	for _, e := range entries {
		byEvent[e.EventID] = e
		if e.Kind == Award {
			awards[e.OrderID] = e
		}
	}
	var effects []opsapi.Effect
	for _, ev := range events {
		entry, found := byEvent[ev.EventID]
		if !found && ev.Kind == (OrderPaid{}).Kind().String() {
			entry, found = awards[ev.Key]
		}
		if found {
			effect := entry.effect()
			effect.EventID = ev.EventID
			effects = append(effects, effect)
		}
	}
	return effects, nil
}

// sqlOffBalances compares each balance with the sum of its entries, in one
// statement and so at one moment.
const sqlOffBalances = `
SELECT coalesce(b.user_id, e.user_id), count(*) OVER ()
  FROM (SELECT user_id, sum(points) AS points FROM points_entry GROUP BY user_id) e
  FULL JOIN points_balance b ON b.user_id = e.user_id
 WHERE coalesce(e.points, 0) <> coalesce(b.balance, 0)
 LIMIT 20`

func (s *Service) invariants(ctx context.Context) ([]opsapi.Invariant, error) {
	balances, err := opsapi.CheckInvariant(ctx, s.pool, "ledger_equals_balance",
		"the balances of users differ from the sum of their entries", sqlOffBalances)
	return []opsapi.Invariant{balances}, err
}
