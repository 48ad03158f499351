package order

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/strictjson"
)

// What operators see of this service beside its messaging. The facts are the
// entries of the orders' history: each that changed an order must have an
// event. The follow-ups are effects of other services' events.

// newConsumer returns the service's consumer with its handlers.
func newConsumer(pool *pgxpool.Pool, sub messaging.Subscriber, s *Service, cfg messaging.ConsumerConfig) *messaging.Consumer {
	c := messaging.NewConsumer(followUpsConsumer, pool, sub, cfg)
	s.register(c)
	return c
}

// Sandbox returns a consumer like the service's own for a copy of its
// database, where it may apply a replay with nobody watching.
func Sandbox(pool *pgxpool.Pool, sub messaging.Subscriber, cfg messaging.ConsumerConfig) (*messaging.Consumer, error) {
	return newConsumer(pool, sub, &Service{pool: pool}, cfg), nil
}

func (s *Service) own() opsapi.Own {
	return opsapi.Own{Evidence: s.evidence, Facts: s.facts, EffectsOf: s.effectsOf, Invariants: s.invariants, Unfinished: s.unfinished,
		Exceptions: opsapi.ExceptionDesk{List: s.listExceptions, Show: s.showException, Settle: s.settleExceptions}}
}

// sqlOrdersAbout knows orders and payments; which orders a user has, the search
// index knows.
const sqlOrdersAbout = `
SELECT order_id FROM orders WHERE order_id = $1
 UNION
SELECT order_id FROM payment WHERE payment_id = $1
 UNION
SELECT order_id FROM payment_exception WHERE payment_id = $1 AND EXISTS (SELECT FROM orders o WHERE o.order_id = payment_exception.order_id)
 LIMIT 10`

func (s *Service) evidence(ctx context.Context, key string) (own opsapi.OwnEvidence, err error) {
	rows, err := s.pool.Query(ctx, sqlOrdersAbout, key)
	if err == nil {
		own.Keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return own, fmt.Errorf("look up orders: %w", err)
	}
	if len(own.Keys) != 1 || own.Keys[0] != key { // a payment: what became of the order is another question
		return own, nil
	}
	rec, err := s.Order(ctx, key)
	if errors.Is(err, errNoOrder) {
		return own, nil
	}
	if err != nil {
		return own, err
	}
	own.Effects = append(rec.effects(), followUpEffects(rec)...)
	exceptions, err := s.exceptionEffects(ctx, key)
	own.Effects = append(own.Effects, exceptions...)
	return own, err
}

// effects tells the order and each step of its history. Notes of customers
// stay here: they may hold anything.
func (rec record) effects() []opsapi.Effect {
	o := opsapi.Effect{What: "order", ID: rec.ID, Key: rec.ID, State: string(rec.State), Version: rec.Version, At: rec.CreatedAt,
		Says: map[string]string{"total": rec.Total.String(), "points": strconv.FormatInt(rec.Points-rec.PointsTakenBack(), 10), "user_id": rec.UserID}}
	if rec.Payment.ID != "" {
		o.Says["payment_id"] = rec.Payment.ID
	}
	if !rec.PaidAt.IsZero() {
		o.Says["paid_at"] = rec.PaidAt.UTC().Format(time.RFC3339)
	}
	if refunded := rec.Refunded(); refunded.Amount > 0 {
		o.Says["refunded"] = refunded.String()
	}
	effects := []opsapi.Effect{o}
	for _, e := range rec.History {
		effects = append(effects, opsapi.Effect{What: "step", ID: rec.ID + "/" + strconv.FormatInt(e.Version, 10), Key: rec.ID,
			State: e.What, Version: e.Version, At: e.At, Says: map[string]string{"actor": e.Actor}})
	}
	return effects
}

func followUpEffects(rec record) (effects []opsapi.Effect) {
	for _, f := range rec.FollowUps {
		e := opsapi.Effect{What: "follow_up", ID: string(f.Kind), Key: rec.ID, State: string(f.State), At: f.Since,
			Says: map[string]string{"promised_by": f.PromisedBy.UTC().Format(time.RFC3339)}}
		if f.Code != "" {
			e.Says["code"] = f.Code
		}
		effects = append(effects, e)
	}
	return effects
}

const sqlExceptionsOf = `
SELECT exception_id, state, reason, last_seen_at FROM payment_exception WHERE order_id = $1 ORDER BY exception_id LIMIT 20`

func (s *Service) exceptionEffects(ctx context.Context, orderID string) ([]opsapi.Effect, error) {
	rows, err := s.pool.Query(ctx, sqlExceptionsOf, orderID)
	if err != nil {
		return nil, fmt.Errorf("read exceptions: %w", err)
	}
	effects, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (opsapi.Effect, error) {
		e := opsapi.Effect{What: opsapi.EffectException, Key: orderID}
		var id int64
		var reason string
		err := row.Scan(&id, &e.State, &reason, &e.At)
		e.ID, e.Says = strconv.FormatInt(id, 10), map[string]string{"reason": reason}
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read exceptions: %w", err)
	}
	return effects, nil
}

// sqlFacts goes by time and id. A row whose transaction commits late is older
// than what was read before it; a later look with an overlapping window finds it.
const sqlFacts = `
SELECT order_id, version, entry, at, history_id FROM order_history
 WHERE at >= @since AND at < @until AND (at, history_id) > (@after::timestamptz, @id::bigint)
   AND entry IN ('created', 'paid', 'refunded', 'cancelled')
 ORDER BY at, history_id LIMIT @limit`

// statedAs is the event that an entry of the history must have.
var statedAs = map[string]messaging.Kind{
	"created": OrderCreated{}.Kind(), "paid": OrderPaid{}.Kind(), "refunded": OrderRefunded{}.Kind(), "cancelled": OrderCancelled{}.Kind(),
}

func (s *Service) facts(ctx context.Context, w opsapi.Window) ([]opsapi.Fact, error) {
	after, id, err := w.Since, int64(0), error(nil)
	if w.After != "" {
		at, rest, _ := strings.Cut(w.After, " ")
		if after, err = time.Parse(time.RFC3339Nano, at); err == nil {
			id, err = strconv.ParseInt(rest, 10, 64)
		}
	}
	if err != nil || !strictjson.Storable(after) {
		return nil, opsapi.ErrBadCursor
	}
	rows, err := s.pool.Query(ctx, sqlFacts, pgx.StrictNamedArgs{"since": w.Since, "until": w.Until, "after": after, "id": id, "limit": w.Limit})
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	facts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f opsapi.Fact, err error) {
		var what string
		var id int64
		err = row.Scan(&f.AggregateID, &f.AggregateVersion, &what, &f.At, &id)
		f.Kind, f.Key = statedAs[what].String(), f.AggregateID
		f.Cursor = f.At.UTC().Format(time.RFC3339Nano) + " " + strconv.FormatInt(id, 10)
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return facts, nil
}

const sqlSettledFollowUps = `
SELECT order_id, kind, state, since FROM follow_up WHERE order_id = ANY($1::text[]) AND state <> 'pending'`

// effectsOf finds the follow-ups that other services' events have settled.
func (s *Service) effectsOf(ctx context.Context, events []opsapi.EventRef) ([]opsapi.Effect, error) {
	orders := make([]string, len(events))
	for i, ev := range events {
		orders[i] = ev.Key
	}
	rows, err := s.pool.Query(ctx, sqlSettledFollowUps, orders)
	if err != nil {
		return nil, fmt.Errorf("read follow-ups: %w", err)
	}
	settled := map[[2]string]opsapi.Effect{}
	e := opsapi.Effect{What: "follow_up"}
	if _, err := pgx.ForEachRow(rows, []any{&e.Key, &e.ID, &e.State, &e.At}, func() error {
		settled[[2]string{e.Key, e.ID}] = e
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read follow-ups: %w", err)
	}
	var effects []opsapi.Effect
	for _, ev := range events {
		kind := FollowUpNotification
		if ev.Kind == (PointsAwarded{}).Kind().String() {
			kind = FollowUpPoints
		}
		if effect, found := settled[[2]string{ev.Key, string(kind)}]; found {
			effect.EventID = ev.EventID
			effects = append(effects, effect)
		}
	}
	return effects, nil
}

const (
	sqlOpenExceptions = `
SELECT exception_id::text, count(*) OVER () FROM payment_exception
 WHERE state = 'open' OR state = 'held' AND first_seen_at < clock_timestamp() - interval '1 hour'
 ORDER BY exception_id LIMIT 20`

	sqlPaidWithoutPayment = `
SELECT o.order_id, count(*) OVER () FROM orders o
 WHERE o.state = 'PAID' AND NOT EXISTS (SELECT FROM payment p WHERE p.order_id = o.order_id) LIMIT 20`
)

func (s *Service) invariants(ctx context.Context) ([]opsapi.Invariant, error) {
	exceptions, err := opsapi.CheckInvariant(ctx, s.pool, "payments_fit_orders",
		"the payment provider announced what no order shows: shopctl exceptions list shows it, and settle ends it", sqlOpenExceptions)
	if err != nil {
		return nil, err
	}
	exceptions.Known = true
	paid, err := opsapi.CheckInvariant(ctx, s.pool, "paid_orders_have_payments", "orders are paid without a payment", sqlPaidWithoutPayment)
	return []opsapi.Invariant{exceptions, paid}, err
}

// sqlUnfinished reads the follow-ups from end to end where few are pending: an
// index of those would make each step of each follow-up a new entry in it, for
// a question that a person asks now and then.
const sqlUnfinished = `
SELECT (SELECT count(*) FROM (SELECT FROM payment_exception WHERE state IN ('open', 'held') LIMIT $1) exceptions)
     + (SELECT count(*) FROM (SELECT FROM follow_up WHERE state = 'pending' LIMIT $1) promises)`

// unfinished counts what the provider announced and nobody has settled, and the
// promises to customers that have neither been kept nor failed.
func (s *Service) unfinished(ctx context.Context) (n int64, err error) {
	if err := s.pool.QueryRow(ctx, sqlUnfinished, opsapi.MaxUnfinished).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what is unfinished: %w", err)
	}
	return n, nil
}
