package points

import (
	"encoding/hex"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/auth"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgtest"
)

// A fixture is the service and its consumer on a database of their own.
type fixture struct {
	pool     *pgxpool.Pool
	service  *Service
	consumer *messaging.Consumer
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	pool := pgtest.New(t, "points")
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "points"})
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{pool: pool, service: NewService(pool, outbox)}
	f.consumer = messaging.NewConsumer(awarder, pool, nil, messaging.ConsumerConfig{})
	f.service.register(f.consumer)
	return f
}

// deliver hands events to the consumer and fails the test if one comes again.
func (f fixture) deliver(t *testing.T, messages ...[]byte) {
	t.Helper()
	if answers := messagingtest.Deliver(t, f.consumer, messages...); !messagingtest.AllAcked(answers) {
		t.Fatalf("not all events were acknowledged: %+v", answers)
	}
}

// retry works on what the consumer has put off, as if its time had come.
func (f fixture) retry(t *testing.T) {
	t.Helper()
	messagingtest.RetryAll(t, f.pool, f.consumer)
}

// waiting returns how many events the consumer has put off.
func (f fixture) waiting(t *testing.T) int64 {
	t.Helper()
	return f.count(t, `SELECT count(*) FROM message_failure WHERE state IN ('retrying', 'parked')`)
}

func newOrder() string {
	id := uuid.Must(uuid.NewV7())
	return "ord_" + hex.EncodeToString(id[:])
}

// paid and refunded return events as the order service publishes them, each
// with an event id of its own.
func paid(t *testing.T, order, user string, points int64) []byte {
	t.Helper()
	return messagingtest.Envelope(t, order, 2, OrderPaid{OrderID: order, UserID: user, PointsDelta: &points})
}

func refunded(t *testing.T, order, user, refund string, points int64) []byte {
	t.Helper()
	return refundedAs(t, 3, order, user, refund, points)
}

// refundedAs is for orders with several refunds, each a version of the order.
func refundedAs(t *testing.T, version int64, order, user, refund string, points int64) []byte {
	t.Helper()
	return messagingtest.Envelope(t, order, version, OrderRefunded{OrderID: order, UserID: user, RefundID: refund, PointsDelta: &points})
}

// withData returns an OrderPaid whose data is what it should not be.
func withData(t *testing.T, order, data string) []byte {
	t.Helper()
	var env messaging.Envelope
	if err := json.Unmarshal(paid(t, order, "u1", 0), &env); err != nil {
		t.Fatal(err)
	}
	env.Data = json.RawMessage(data)
	raw, err := json.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// balance reads what the API says.
func (f fixture) balance(t *testing.T, user string) balanceView {
	t.Helper()
	return get[balanceView](t, f, "/v1/users/"+user+"/points")
}

func get[T any](t *testing.T, f fixture, path string) (answer T) {
	t.Helper()
	w := httptest.NewRecorder()
	f.service.Handler(auth.Open()).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if w.Code != 200 {
		t.Fatalf("GET %s: status %d, %s", path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return answer
}

// count returns the first column of the query's only row.
func (f fixture) count(t *testing.T, sql string, args ...any) (n int64) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (f fixture) requireBalance(t *testing.T, user string, want int64) {
	t.Helper()
	if got := f.balance(t, user).Balance; got != want {
		t.Fatalf("balance of %s: got %d, want %d", user, got, want)
	}
}

// sqlUnequal counts the balances that are not the sum of their entries.
const sqlUnequal = `
SELECT count(*)
  FROM (SELECT user_id, sum(points) AS sum FROM points_entry GROUP BY user_id) e
  FULL JOIN points_balance b USING (user_id)
 WHERE e.sum IS DISTINCT FROM b.balance`

func (f fixture) requireSums(t *testing.T) {
	t.Helper()
	if n := f.count(t, sqlUnequal); n != 0 {
		t.Fatalf("%d balances are not the sum of their entries", n)
	}
}
