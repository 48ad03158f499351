package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/services/order"
)

// The payment: the transaction that everything else follows from. Its
// statements are taken from the service itself (capture.go) and run without
// it, by pgbench and by pgx; then the service runs them, called directly and
// over HTTP.

// payClients is how many clients pay at once, and how many connections they
// have, everywhere in this group.
const payClients = 32

func (s *stand) payGroup() group {
	return group{title: "payments", cells: []cell{
		{name: "pay/pgbench", what: "the service's statements by pgbench, 32 clients", run: s.payByPgbench},
		{name: "pay/pgx", what: "the service's statements by pgx, 32 clients", run: s.payByPgx},
		{name: "pay/wake-off", what: "the service called directly, 64 clients, no wake-up", run: s.payDirectly(false)},
		{name: "pay/wake-on", what: "the service called directly, 64 clients, with wake-ups and a listener", run: s.payDirectly(true)},
		{name: "pay/http", what: "signed callbacks over HTTP, 32 clients", run: s.payOverHTTP},
	}}
}

// A shop is the order service on a database of its own, in this process.
type shop struct {
	s       *stand
	db      database
	drop    func()
	pool    *pgxpool.Pool
	broker  *broker
	conn    *natsbroker.Broker
	outbox  *messaging.Outbox
	service *order.Service
}

type shopSetup struct {
	conns int
	wake  bool // tell relays of commits
}

// openShop makes a shop in which n orders wait for their payment.
func (s *stand) openShop(ctx context.Context, b *broker, n int, setup shopSetup) (*shop, error) {
	if err := b.reset(ctx, allSubscriptions()...); err != nil {
		return nil, err
	}
	sh := &shop{s: s, broker: b}
	if err := sh.open(ctx, n, setup); err != nil {
		sh.close()
		return nil, err
	}
	return sh, nil
}

func (sh *shop) open(ctx context.Context, n int, setup shopSetup) (err error) {
	if sh.db, sh.drop, err = sh.s.newDatabase(ctx, "order"); err != nil {
		return err
	}
	if err := sh.s.placeOrders(ctx, sh.db, n); err != nil {
		return err
	}
	if sh.pool, err = sh.db.open(ctx, setup.conns); err != nil {
		return err
	}
	cfg := messaging.OutboxConfig{Producer: "order"}
	if setup.wake {
		if sh.conn, err = sh.broker.connectProduct(ctx, "order"); err != nil {
			return err
		}
		cfg.Wake = sh.conn.Wake(outboxName)
	}
	if sh.outbox, err = messaging.NewOutbox(cfg); err != nil {
		return err
	}
	sh.service, err = order.NewService(sh.pool, sh.outbox, order.ServiceConfig{})
	return err
}

func (sh *shop) close() {
	if sh.conn != nil {
		sh.conn.Close()
	}
	if sh.pool != nil {
		sh.pool.Close()
	}
	if sh.drop != nil {
		sh.drop()
	}
}

// sqlPlaceOrders writes orders as they are before their payment. The number of
// each is in its id.
const sqlPlaceOrders = `
INSERT INTO orders (order_id, user_id, state, version, currency, total_amount, created_at)
SELECT 'ord_' || lpad(to_hex(n), 32, '0'), 'u_' || n % 5000, 'PENDING_PAYMENT', 1, 'CNY', 12990, now()
  FROM generate_series(0, $1::bigint - 1) AS n`

func (s *stand) placeOrders(ctx context.Context, db database, n int) error {
	pool, err := db.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, sqlPlaceOrders, n); err != nil {
		return fmt.Errorf("place orders: %w", err)
	}
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE orders"); err != nil {
		return fmt.Errorf("place orders: %w", err)
	}
	return s.checkpoint(ctx)
}

func paymentID(n int) string  { return fmt.Sprintf("pay_%032x", n) }
func callbackID(n int) string { return fmt.Sprintf("msg_%032x", n) }

// callbackBody is what the provider would send for order n.
func callbackBody(n int) []byte {
	return fmt.Appendf(nil, `{"type":"payment.succeeded","timestamp":"2026-10-03T02:00:00Z","data":{"payment_id":%q,"order_id":%q,"amount":12990,"currency":"CNY"}}`,
		paymentID(n), orderID(n))
}

// pay pays order n through the service.
func (sh *shop) pay(ctx context.Context, n int) error {
	out, err := sh.service.ApplyCallback(ctx, order.Callback{
		ID: callbackID(n), Type: order.PaymentSucceeded, OrderID: orderID(n), PaymentID: paymentID(n),
		Amount: order.Money{Amount: 12990, Currency: "CNY"}, At: time.Date(2026, 10, 3, 2, 0, 0, 0, time.UTC), Body: callbackBody(n),
	})
	if err == nil && out.Result != order.ResultApplied {
		err = fmt.Errorf("%w: the payment of order %d is %s", errCheated, n, out.Result)
	}
	return err
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
	complete, err := single(ctx, pool, `
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

// webhookKey signs the callbacks of this benchmark.
var webhookKey = bytes.Repeat([]byte{11}, 32)

// startOrder starts the order service and returns a function that announces
// the payment of order n to it.
func (s *stand) startOrder(ctx context.Context, b *broker, db database) (service *child, pay func(ctx context.Context, n int) error, err error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	service, err = s.startService(ctx, "order", "order", "HTTP_ADDR="+addr, "DATABASE_URL="+db.dsn, "NATS_URL="+b.url,
		"WEBHOOK_SECRETS=whsec_"+base64.StdEncoding.EncodeToString(webhookKey), "DATABASE_CONNS="+strconv.Itoa(payClients))
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * concurrent}
	client := &http.Client{Transport: transport}
	url := "http://" + addr + "/v1/webhooks/payments"
	return service, func(ctx context.Context, n int) error { return announce(ctx, client, url, n) }, err
}

// announce sends a callback, signed as Standard Webhooks 1.0 prescribes.
func announce(ctx context.Context, client *http.Client, url string, n int) error {
	body, id, at := callbackBody(n), callbackID(n), strconv.FormatInt(time.Now().Unix(), 10)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, webhookKey)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", at)
	req.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("pay order %d: %w", n, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		return fmt.Errorf("pay order %d: %d %s: %w", n, resp.StatusCode, answer, errors.Join(errCheated, err))
	}
	return nil
}

// quiet drops the log of what runs in this process.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
