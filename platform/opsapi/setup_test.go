package opsapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
)

const (
	alice  = "alice-alice-alice-alice"
	bob    = "bob-bob-bob-bob-bob-bob"
	viewer = "viewer-viewer-viewer-viewer"
	peer   = "peer-peer-peer-peer-peer"
	hashed = "hashed-hashed-hashed-hashed" // known to the API by its hash

	tokens = "alice:operator:" + alice + " bob:approver:" + bob + "\n# a remark\nviewer:viewer:" + viewer + " services:peer:" + peer +
		" carol:viewer:sha256:7d9074940398eecd132c5b3dad1637348b1eed06267c351ad8a79a6fd4bd173c"
)

// changed is the event of these tests: the n-th change of some aggregate.
type changed struct {
	N    int    `json:"n"`
	Mail string `json:"mail,omitempty"`
}

func (changed) Kind() messaging.Kind {
	return messaging.Kind{Context: "test", Type: "ThingChanged", Version: 1, Aggregate: "thing"}
}

// A bench is an ops API over a database of its own, with a consumer whose
// handler can be broken.
type bench struct {
	pool     *pgxpool.Pool
	consumer *messaging.Consumer
	api      *opsapi.API
	url      string
	broken   atomic.Bool
}

// newBench returns an API with the given configuration, of which the rest is
// filled in.
func newBench(t *testing.T, cfg opsapi.Config, consumer messaging.ConsumerConfig) *bench {
	t.Helper()
	b := &bench{pool: pgtest.New(t, "messaging")}
	if _, err := b.pool.Exec(t.Context(), `CREATE TABLE effect (seq bigserial, aggregate text NOT NULL, n int NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	b.consumer = messaging.NewConsumer("writer", b.pool, idle{}, consumer)
	messaging.Handle(b.consumer, b.onChanged)
	cfg.Service, cfg.Pool, cfg.Consumers, cfg.Flags.OpsTokens = "bench", b.pool, []*messaging.Consumer{b.consumer}, tokens
	var err error
	if b.api, err = opsapi.New(cfg); err != nil {
		t.Fatal(err)
	}
	b.serve(t, b.api)
	return b
}

// serve makes the requests of this bench go to an API.
func (b *bench) serve(t *testing.T, api *opsapi.API) {
	t.Helper()
	router := httpserver.NewRouter("test")
	api.Mount(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	b.url = server.URL
}

func (b *bench) onChanged(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
	if b.broken.Load() {
		return messaging.Permanent(messaging.Coded("broken", errors.New("the rule is broken")))
	}
	_, err := tx.Exec(ctx, `INSERT INTO effect (aggregate, n) VALUES ($1, $2)`, ev.AggregateID, ev.Data.N)
	return err
}

func (b *bench) client(t *testing.T, token string) *opsapi.Client {
	t.Helper()
	c, err := opsapi.NewClient("bench", b.url, process.Secret(token))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bench) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.pool.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// letters makes n dead letters, one for each of as many aggregates, and mends
// the handler.
func (b *bench) letters(t *testing.T, n int) (events [][]byte) {
	t.Helper()
	b.broken.Store(true)
	events = changes(t, n)
	messagingtest.Deliver(t, b.consumer, events...)
	b.broken.Store(false)
	if got := b.count(t, `SELECT count(*) FROM message_failure WHERE state = 'open'`); got != n {
		t.Fatalf("got %d dead letters, want %d", got, n)
	}
	return events
}

func changes(t *testing.T, n int) (events [][]byte) {
	t.Helper()
	for i := range n {
		events = append(events, messagingtest.Envelope(t, fmt.Sprintf("thing-%d", i), 1, changed{N: i, Mail: "jo@mail.example"}))
	}
	return events
}

// run has the consumer work until stop is called or the test ends.
func (b *bench) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.consumer.Run(ctx) }()
	var stopped atomic.Bool
	stop = func() {
		if stopped.Swap(true) {
			return
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the consumer ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// ask makes a request as the bearer of a token and returns status and body.
func (b *bench) ask(t *testing.T, token, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// hasCode reports whether err is a refusal with this code.
func hasCode(err error, code string) bool {
	var refused *httpserver.Error
	return errors.As(err, &refused) && refused.Code == code
}

// idle is a subscription on which nothing ever arrives.
type idle struct{}

func (idle) Subscribe(context.Context, messaging.Subscription) (messaging.Source, error) {
	return idle{}, nil
}

func (idle) Fetch(ctx context.Context, _ int) ([]messaging.Delivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (idle) Close() {}

// stage commits events to the bench's own outbox and returns their ids.
func (b *bench) stage(t *testing.T, drafts ...messaging.Draft) (ids []uuid.UUID) {
	t.Helper()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, drafts...) }); err != nil {
		t.Fatal(err)
	}
	for _, d := range drafts {
		ids = append(ids, d.ID())
	}
	return ids
}

// routes lists what the API serves, as METHOD /path.
func routes(t *testing.T, api *opsapi.API) (all []string) {
	t.Helper()
	router := chi.NewRouter()
	api.Mount(router)
	err := chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A logBuffer collects what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
