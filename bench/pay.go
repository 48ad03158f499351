package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// The payment: the transaction that everything else follows from. Its
// statements are taken from the service itself (capture.go) and run without
// it, by pgbench and by pgx; then the service runs them, called directly and
// over HTTP.

// payClients is how many clients pay at once, and how many connections they
// have, everywhere in this group.
const payClients = 32

func (s *stand) payGroup() group {
	return group{title: "payments", share: 10, cells: []cell{
		{name: "pay/pgbench", what: "the service's statements by pgbench, 32 clients", run: s.payByPgbench},
		{name: "pay/pgx", what: "the service's statements by pgx, 32 clients", run: s.payByPgx},
		{name: "pay/wake-off", what: "the service called directly, 64 clients, no wake-up", run: s.payDirectly(false)},
		{name: "pay/wake-on", what: "the service called directly, 64 clients, with wake-ups and a listener", run: s.payDirectly(true)},
		{name: "pay/http", what: "signed callbacks over HTTP, 32 clients", run: s.payOverHTTP},
	}}
}

// each calls do for every number below n, from so many clients at once.
func each(ctx context.Context, clients, n int, do func(ctx context.Context, client, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for client := range clients {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return ctx.Err()
				}
				if err := do(ctx, client, i); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// checkPaid makes sure that n orders are paid, each with all that follows.
func checkPaid(ctx context.Context, pool *pgxpool.Pool, n int) error {
	complete, err := completeOf(ctx, pool, `
		SELECT count(*) FROM orders o
		  JOIN payment USING (order_id)
		  JOIN message_outbox m ON m.aggregate_id = o.order_id AND m.kind = 'OrderPaid.v1'
		 WHERE o.state = 'PAID' AND EXISTS (SELECT FROM message_outbox_pending p WHERE p.event_id = m.event_id)
		   AND (SELECT count(*) FROM follow_up f WHERE f.order_id = o.order_id) = 2
		   AND EXISTS (SELECT FROM payment_callback c WHERE c.order_id = o.order_id AND c.result = 'applied')
		   AND EXISTS (SELECT FROM order_history h WHERE h.order_id = o.order_id AND h.entry = 'paid')`)
	if err == nil && int(complete) != n {
		err = fmt.Errorf("%w: %d of %d orders are paid with all that follows", errCheated, complete, n)
	}
	return err
}

// payDirectly measures the service without HTTP, and what the hint to the
// relays costs its clients. No relay runs: it would take its share of the
// cores with a hint and without.
func (s *stand) payDirectly(wake bool) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		const clients = 64
		shop, err := s.openShop(ctx, s.always, s.payments, shopSetup{conns: clients, wake: wake})
		if err != nil {
			return nil, err
		}
		defer shop.close()
		if wake {
			listener, err := s.always.connectProduct(ctx, "relay")
			if err != nil {
				return nil, err
			}
			defer listener.Close()
			_, stop, err := listener.OnWake(outboxName)
			if err != nil {
				return nil, err
			}
			defer stop()
		}
		m, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		if err := each(ctx, clients, s.payments, func(ctx context.Context, _, i int) error { return shop.pay(ctx, i) }); err != nil {
			return nil, err
		}
		r, err := m.stop(ctx, s.payments)
		return r, errors.Join(err, checkPaid(ctx, shop.pool, s.payments))
	}
}

// payByPgx replays the service's statements with one connection a client.
func (s *stand) payByPgx(ctx context.Context) (Reading, error) {
	statements, err := s.capturePayment(ctx)
	if err != nil {
		return nil, err
	}
	shop, err := s.openShop(ctx, s.always, s.payments, shopSetup{conns: payClients})
	if err != nil {
		return nil, err
	}
	defer shop.close()
	conns := make([]*pgx.Conn, payClients)
	for i := range conns {
		if conns[i], err = pgx.Connect(ctx, shop.db.dsn); err != nil {
			return nil, err
		}
		defer conns[i].Close(context.WithoutCancel(ctx))
	}
	m, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := each(ctx, payClients, s.payments, func(ctx context.Context, client, i int) error {
		return statements.replay(ctx, conns[client], i)
	}); err != nil {
		return nil, err
	}
	r, err := m.stop(ctx, s.payments)
	return r, errors.Join(err, checkPaid(ctx, shop.pool, s.payments))
}

// payOverHTTP measures the order service as a process.
func (s *stand) payOverHTTP(ctx context.Context) (Reading, error) {
	shop, err := s.openShop(ctx, s.always, s.payments, shopSetup{conns: 1})
	if err != nil {
		return nil, err
	}
	defer shop.close()
	service, pay, err := s.startOrder(ctx, s.always, shop.db)
	if service != nil {
		defer service.stop()
	}
	if err != nil {
		return nil, err
	}
	m, err := s.start(ctx, service)
	if err != nil {
		return nil, err
	}
	if err := each(ctx, payClients, s.payments, func(ctx context.Context, _, i int) error { return pay(ctx, i) }); err != nil {
		return nil, err
	}
	r, err := m.stop(ctx, s.payments)
	return r, errors.Join(err, checkPaid(ctx, shop.pool, s.payments))
}
