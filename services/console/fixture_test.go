package console

import (
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/leaktest"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A fixture is the auditor on a database of its own.
type fixture struct {
	pool     *pgxpool.Pool
	consumer *messaging.Consumer
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{pool: pgtest.New(t, "console")}
	f.consumer = messaging.NewConsumer(auditor, f.pool, nil, messaging.ConsumerConfig{})
	new(Service).register(f.consumer)
	return f
}

func (f fixture) hear(t *testing.T, messages ...[]byte) {
	t.Helper()
	if answers := messagingtest.Deliver(t, f.consumer, messages...); !messagingtest.AllAcked(answers) {
		t.Fatalf("not all events were acknowledged: %+v", answers)
	}
}

func (f fixture) tally(t *testing.T) Tally {
	t.Helper()
	tally, err := readTally(t.Context(), f.pool)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

func newOrder() string {
	id := uuid.Must(uuid.NewV7())
	return "ord_" + hex.EncodeToString(id[:])
}

// newPages returns a service that can show pages, and whose neighbours are the
// handler given.
func newPages(t *testing.T, neighbours http.Handler) *Service {
	t.Helper()
	server := httptest.NewServer(neighbours)
	t.Cleanup(server.Close)
	peers := map[string]string{}
	for _, name := range serviceNames {
		peers[name] = server.URL
	}
	s, err := NewService(nil, nil, Config{
		Flags: opsapi.Flags{OpsPeers: peers}, OrderURL: server.URL, PointsURL: server.URL, NotifyURL: server.URL, SearchURL: server.URL, SimURL: server.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, s *Service, path string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// confirm notes that search has the order.
func (f fixture) confirm(t *testing.T, order string) {
	t.Helper()
	err := postgres.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
		return confirm(t.Context(), tx, []opsapi.Effect{{Key: order, At: time.Now()}})
	})
	if err != nil {
		t.Fatal(err)
	}
}
