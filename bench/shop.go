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
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/services/order"
	"orderpaid/services/points"
)

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

// relay runs a relay for the shop in this process, on a pool and a connection
// of its own.
func (sh *shop) relay(ctx context.Context) (acks *ackClock, stop func(), err error) {
	pool, err := sh.db.open(ctx, 3)
	if err != nil {
		return nil, nil, err
	}
	conn, err := sh.broker.connectProduct(ctx, "relay")
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	stop, acks, err = runRelay(ctx, pool, conn)
	if err != nil {
		conn.Close()
		pool.Close()
		return nil, nil, err
	}
	inner := stop
	return acks, func() { inner(); conn.Close(); pool.Close() }, nil
}

func runRelay(ctx context.Context, pool *pgxpool.Pool, conn *natsbroker.Broker) (stop func(), acks *ackClock, err error) {
	wake, stopWaking, err := conn.OnWake(outboxName)
	if err != nil {
		return nil, nil, err
	}
	acks = newAckClock(conn)
	relay, err := messaging.NewRelay(pool, acks, messaging.RelayConfig{Database: outboxName, Wake: wake, Logger: quiet()})
	if err != nil {
		stopWaking()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = relay.Run(ctx) // it returns nil
	}()
	stop = func() { cancel(); <-done; stopWaking() }
	err = poll(ctx, 20*time.Millisecond, func() (bool, error) {
		n, err := single(ctx, pool, `SELECT count(*) FROM relay_lease WHERE lease_until > now()`)
		return n == messaging.Shards, err
	})
	if err != nil {
		stop()
		return nil, nil, err
	}
	return stop, acks, nil
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

// allSubscriptions are those of the services that take part.
func allSubscriptions() []messaging.Subscription {
	return append(order.Subscriptions(), points.Subscriptions()...)
}

// quiet drops the log of what runs in this process.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
