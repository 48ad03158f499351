package order

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/auth"
	"orderpaid/platform/messaging"
	"orderpaid/platform/pgtest"
)

var testKey = bytes.Repeat([]byte{7}, 32)

// A shop is the service on a database of its own, reached over HTTP.
type shop struct {
	pool    *pgxpool.Pool
	service *Service
	url     string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	return newShopOn(t, pgtest.New(t, "order"), ServiceConfig{})
}

func newShopOn(t *testing.T, pool *pgxpool.Pool, cfg ServiceConfig) *shop {
	t.Helper()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order"})
	if err != nil {
		t.Fatal(err)
	}
	service, err := NewService(pool, outbox, cfg)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := NewVerifier([]string{"whsec_" + base64.StdEncoding.EncodeToString(testKey)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(service.Handler(verifier, auth.Open()))
	t.Cleanup(server.Close)
	return &shop{pool, service, server.URL}
}

// A reply is an answer over HTTP.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// code returns the code of a problem document, and "" for everything else.
func (r reply) code() string {
	var problem struct{ Code string }
	if r.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal(r.body, &problem) != nil {
		return ""
	}
	return problem.Code
}

func decode[T any](t *testing.T, r reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("decode %s: %v", r, err)
	}
	return v
}

// do makes a request; header holds names and values in turn. It may be called
// from any goroutine: what goes wrong is an error of the test, and no reply.
func (s *shop) do(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return reply{}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return reply{}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return reply{resp.StatusCode, resp.Header, raw}
}

// order sends POST /v1/orders under a key of its own.
func (s *shop) order(t *testing.T, body string) reply {
	t.Helper()
	return s.do(t, "POST", "/v1/orders", body, "Idempotency-Key", uuid.NewString())
}

const (
	backpack    = "OUT-PACK-38UL" // 499.00 CNY
	filters     = "COF-FILTER-100"
	sencha      = "TEA-SENCHA-100" // 1050 JPY
	oneBackpack = `{"user_id":"u_1","currency":"CNY","items":[{"sku":"OUT-PACK-38UL","quantity":1}]}`
)

// placed returns a new order of one backpack, 499.00 CNY.
func (s *shop) placed(t *testing.T) orderView {
	t.Helper()
	r := s.order(t, oneBackpack)
	if r.status != http.StatusCreated {
		t.Fatalf("place order: got %s, want 201", r)
	}
	return decode[orderView](t, r)
}

func (s *shop) get(t *testing.T, orderID string) orderView {
	t.Helper()
	r := s.do(t, "GET", "/v1/orders/"+orderID, "")
	if r.status != http.StatusOK {
		t.Fatalf("get order: got %s, want 200", r)
	}
	return decode[orderView](t, r)
}

func (s *shop) cancel(t *testing.T, orderID string) reply {
	t.Helper()
	return s.do(t, "POST", "/v1/orders/"+orderID+"/cancel", `{"reason":"changed my mind"}`)
}

// An announcement is a callback of the provider with a right signature.
type announcement struct {
	id        string // a new one if empty
	kind      CallbackType
	orderID   string
	paymentID string
	refundID  string
	amount    int64
	currency  string
}

func (a announcement) body() string {
	refund := ""
	if a.refundID != "" {
		refund = fmt.Sprintf(`"refund_id":%q,`, a.refundID)
	}
	return fmt.Sprintf(`{"type":%q,"timestamp":"2026-10-03T02:00:00Z","data":{"payment_id":%q,%s"order_id":%q,"amount":%d,"currency":%q}}`,
		a.kind, a.paymentID, refund, a.orderID, a.amount, a.currency)
}

func (s *shop) announce(t *testing.T, a announcement) reply {
	t.Helper()
	if a.id == "" {
		a.id = "msg_" + uuid.NewString()
	}
	return s.callback(t, a.id, a.body())
}

// callback sends any body with a right signature.
func (s *shop) callback(t *testing.T, id, body string) reply {
	t.Helper()
	at := time.Now()
	return s.do(t, "POST", "/v1/webhooks/payments", body,
		"webhook-id", id, "webhook-timestamp", strconv.FormatInt(at.Unix(), 10), "webhook-signature", sign(testKey, id, at, body))
}

// sign is written from the specification and shares nothing with the verifier.
func sign(key []byte, id string, at time.Time, body string) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// pay announces the payment of the order's whole total.
func (s *shop) pay(t *testing.T, o orderView, paymentID string) reply {
	t.Helper()
	return s.announce(t, announcement{kind: PaymentSucceeded, orderID: o.OrderID, paymentID: paymentID,
		amount: o.Total.Amount, currency: o.Total.Currency})
}

func (s *shop) refund(t *testing.T, o orderView, paymentID, refundID string, amount int64) reply {
	t.Helper()
	return s.announce(t, announcement{kind: PaymentRefunded, orderID: o.OrderID, paymentID: paymentID, refundID: refundID,
		amount: amount, currency: o.Total.Currency})
}

// result returns what the answer to a callback says was made of it.
func (r reply) result() Outcome {
	var answer struct {
		Result Result
		Reason Reason
	}
	_ = json.Unmarshal(r.body, &answer) // a reply without a result has none
	return Outcome{answer.Result, answer.Reason}
}

func (s *shop) exceptions(t *testing.T) []exceptionView {
	t.Helper()
	return decode[page[exceptionView]](t, s.do(t, "GET", "/v1/payment-exceptions?limit=100", "")).Items
}

// count returns the number of rows of a table, or of what follows FROM.
func (s *shop) count(t *testing.T, from string, args ...any) int {
	t.Helper()
	rows, _ := s.pool.Query(t.Context(), "SELECT count(*) FROM "+from, args...)
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatalf("count %s: %v", from, err)
	}
	return n
}

// written returns how many rows there are of everything that a request can
// write.
func (s *shop) written(t *testing.T) int {
	t.Helper()
	n := 0
	for _, table := range []string{"orders", "order_line", "order_history", "payment", "refund", "payment_callback",
		"payment_exception", "follow_up", "idempotency_key", "message_outbox", "message_outbox_pending"} {
		n += s.count(t, table)
	}
	return n
}

// exec changes the database behind the service's back.
func (s *shop) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("exec: %v", err)
	}
}

// atOnce runs fn n times at the same moment and waits for all.
func atOnce(n int, fn func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			fn(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}
