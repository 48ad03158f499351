package search

import (
	"encoding/hex"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/auth"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

// A fixture is the service and its consumer on a database of their own.
type fixture struct {
	pool     *pgxpool.Pool
	service  *Service
	consumer *messaging.Consumer
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	pool := pgtest.New(t, "search")
	f := fixture{pool: pool, service: NewService(pool)}
	f.consumer = messaging.NewConsumer(indexer, pool, nil, messaging.ConsumerConfig{})
	f.service.register(f.consumer)
	return f
}

// deliver hands events to the consumer as one group and fails the test if one
// of them comes again.
func (f fixture) deliver(t *testing.T, messages ...[]byte) {
	t.Helper()
	if answers := messagingtest.Deliver(t, f.consumer, messages...); !messagingtest.AllAcked(answers) {
		t.Fatalf("not all events were acknowledged: %+v", answers)
	}
}

// deliverEarly hands over events of which some come before their predecessors,
// and then whatever had to wait and need not any more.
func (f fixture) deliverEarly(t *testing.T, messages ...[]byte) {
	t.Helper()
	f.deliver(t, messages...)
	messagingtest.RetryAll(t, f.pool, f.consumer)
}

func newOrder() string {
	id := uuid.Must(uuid.NewV7())
	return "ord_" + hex.EncodeToString(id[:])
}

var noon = time.Date(2026, 10, 3, 12, 0, 0, 0, time.UTC)

// placed returns the data of an order with one item of each title, given in
// one language.
func placed(order, user string, titles ...string) OrderCreated {
	e := OrderCreated{OrderID: order, UserID: user, Total: Money{10000, "CNY", 2}, CreatedAt: noon}
	for _, title := range titles {
		e.Items = append(e.Items, Item{SKU: "SKU-1", Titles: map[string]string{"en": title}, Quantity: 1, LineAmount: 10000})
	}
	return e
}

// The events of one order's life, each with an event id of its own.
func created(t *testing.T, order, user string, titles ...string) []byte {
	t.Helper()
	return messagingtest.Envelope(t, order, 1, placed(order, user, titles...))
}

func paid(t *testing.T, order string, version int64) []byte {
	t.Helper()
	return messagingtest.Envelope(t, order, version, OrderPaid{order, noon.Add(time.Minute)})
}

func refunded(t *testing.T, order string, version, total int64) []byte {
	t.Helper()
	return messagingtest.Envelope(t, order, version, OrderRefunded{order, Money{total, "CNY", 2}, noon.Add(time.Duration(version) * time.Hour)})
}

func cancelled(t *testing.T, order string, version int64) []byte {
	t.Helper()
	return messagingtest.Envelope(t, order, version, OrderCancelled{order, noon.Add(time.Minute)})
}

// with returns message after a change of its envelope.
func with(t *testing.T, message []byte, change func(*messaging.Envelope)) []byte {
	t.Helper()
	var env messaging.Envelope
	if err := json.Unmarshal(message, &env); err != nil {
		t.Fatal(err)
	}
	change(&env)
	raw, err := json.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// search asks the API; params are names and values.
func (f fixture) search(t *testing.T, params ...string) (answer searchAnswer) {
	t.Helper()
	w := f.get(query(params...))
	if w.Code != 200 {
		t.Fatalf("GET %v: status %d, %s", params, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("GET %v: %v", params, err)
	}
	return answer
}

func query(params ...string) string {
	values := url.Values{}
	for i := 0; i < len(params); i += 2 {
		values.Set(params[i], params[i+1])
	}
	return "/v1/orders/search?" + values.Encode()
}

func (f fixture) get(target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.service.Handler(auth.Open()).ServeHTTP(w, httptest.NewRequest("GET", target, nil))
	return w
}

// found returns the ids of the orders that the API finds, in its order.
func (f fixture) found(t *testing.T, params ...string) []string {
	t.Helper()
	var ids []string
	for _, order := range f.search(t, params...).Orders {
		ids = append(ids, order.OrderID)
	}
	return ids
}

// document returns the only order that the API lists.
func (f fixture) document(t *testing.T) Document {
	t.Helper()
	orders := f.search(t).Orders
	if len(orders) != 1 {
		t.Fatalf("got %d orders, want 1", len(orders))
	}
	return orders[0]
}

// put stores documents without events.
func (f fixture) put(t testing.TB, docs ...Document) {
	t.Helper()
	err := postgres.InTx(t.Context(), f.pool, func(tx pgx.Tx) error { return putDocuments(t.Context(), tx, 0, docs) })
	if err != nil {
		t.Fatal(err)
	}
}

// count returns the first column of the query's only row.
func (f fixture) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// explain returns the plan of a search, with what was executed.
func (f fixture) explain(t *testing.T, q Query) string {
	t.Helper()
	rows, _ := f.pool.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) "+sqlFind, pgx.QueryExecModeCacheDescribe,
		findArgs(queryOf(q.Text), q, 21))
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
