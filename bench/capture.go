package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/services/order"
)

// payStatements is one payment as the order service sends it to PostgreSQL,
// recorded from the service itself, so that the limit cannot drift away from
// the product. A step is one round trip.
type payStatements struct {
	steps [][]statement
	event uuid.UUID // the id of the event that was staged
}

// capturePayment lets the service pay one order and records what it sends.
func (s *stand) capturePayment(ctx context.Context) (*payStatements, error) {
	db, drop, err := s.newDatabase(ctx, "order")
	if err != nil {
		return nil, err
	}
	defer drop()
	if err := s.placeOrders(ctx, db, 1); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(db.dsn)
	if err != nil {
		return nil, err
	}
	recorded := &recorder{}
	cfg.ConnConfig.Tracer = recorded
	pool, err := openWith(ctx, cfg, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order"})
	if err != nil {
		return nil, err
	}
	service, err := order.NewService(pool, outbox, order.ServiceConfig{})
	if err != nil {
		return nil, err
	}
	if err := (&shop{service: service}).pay(ctx, 0); err != nil {
		return nil, err
	}
	p := &payStatements{steps: recorded.steps}
	if recorded.err != nil {
		return nil, recorded.err
	}
	err = pool.QueryRow(ctx, `SELECT event_id FROM message_outbox`).Scan(&p.event)
	return p, err
}

// A recorder keeps every statement that a connection sends. pgx calls it from
// the one goroutine that uses the connection.
type recorder struct {
	steps [][]statement
	err   error
}

// TraceQueryStart implements [pgx.QueryTracer].
func (r *recorder) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.steps = append(r.steps, nil)
	r.add(ctx, conn, data.SQL, data.Args)
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements [pgx.BatchTracer].
func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.steps = append(r.steps, nil)
	return ctx
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (r *recorder) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	r.add(ctx, conn, data.SQL, data.Args)
}

// TraceBatchEnd implements [pgx.BatchTracer].
func (r *recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// add keeps a statement with its arguments by position.
func (r *recorder) add(ctx context.Context, conn *pgx.Conn, sql string, args []any) {
	if len(args) > 0 {
		if named, ok := args[0].(pgx.QueryRewriter); ok {
			var err error
			if sql, args, err = named.RewriteQuery(ctx, conn, sql, args[1:]); err != nil {
				r.err = errors.Join(r.err, err)
			}
		}
	}
	last := len(r.steps) - 1
	r.steps[last] = append(r.steps[last], statement{sql, args})
}

// replay sends the payment of order n, in the same round trips.
func (p *payStatements) replay(ctx context.Context, conn *pgx.Conn, n int) error {
	ids := p.idsOf(n)
	for _, step := range p.steps {
		if len(step) == 1 {
			if _, err := conn.Exec(ctx, step[0].sql, ids.in(step[0].args)...); err != nil {
				return fmt.Errorf("pay order %d: %w", n, err)
			}
			continue
		}
		batch := &pgx.Batch{}
		for _, st := range step {
			batch.Queue(st.sql, ids.in(st.args)...)
		}
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("pay order %d: %w", n, err)
		}
	}
	return nil
}

// ids replaces the ids of the recorded payment by those of another one, in
// whatever holds them.
type ids struct {
	texts *strings.Replacer
	event uuid.UUID // the recorded one
	now   uuid.UUID
}

func (p *payStatements) idsOf(n int) ids {
	event := eventID(p.event, n)
	return ids{event: p.event, now: event, texts: strings.NewReplacer(orderID(0), orderID(n), paymentID(0), paymentID(n),
		callbackID(0), callbackID(n), p.event.String(), event.String())}
}

// eventID is the recorded id with the number in its last six bytes: it keeps
// its time, and so its partition.
func eventID(like uuid.UUID, n int) uuid.UUID {
	for i := range 6 {
		like[15-i] = byte(n >> (8 * i))
	}
	return like
}

func (r ids) in(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = r.value(arg)
	}
	return out
}

func (r ids) value(arg any) any {
	switch v := arg.(type) {
	case string:
		return r.texts.Replace(v)
	case []byte:
		return []byte(r.texts.Replace(string(v)))
	case uuid.UUID:
		if v == r.event {
			return r.now
		}
		return v
	case []string:
		return mapped(v, r.texts.Replace)
	case [][]byte:
		return mapped(v, func(b []byte) []byte { return []byte(r.texts.Replace(string(b))) })
	case []uuid.UUID:
		return mapped(v, func(id uuid.UUID) uuid.UUID { return r.value(id).(uuid.UUID) })
	}
	if v := reflect.ValueOf(arg); v.IsValid() && v.Kind() == reflect.String { // a named type
		return r.texts.Replace(v.String())
	}
	return arg
}

func mapped[T any](in []T, f func(T) T) []T {
	out := make([]T, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}
