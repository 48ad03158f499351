package httpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/porttest"
	"orderpaid/platform/postgres"
)

// failing serves a handler that fails with err under its own trace, and
// returns the answer and what was logged about it.
func failing(t *testing.T, err error) (answer, []string) {
	t.Helper()
	r := NewRouter("shop")
	r.Get("/v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) { WriteError(w, r, err) })
	trace, traceParent := newTrace()
	got := startServer(t, r, defaultLimits).do(t, "GET", "/v1/orders/4711", "", "traceparent", traceParent)
	if p := got.problem(t); p.TraceID != trace {
		t.Errorf("trace_id = %s, want %s", p.TraceID, trace)
	}
	var lines []string
	for _, line := range logs.linesWith(trace) {
		if strings.Contains(line, "request failed") {
			lines = append(lines, line)
		}
	}
	return got, lines
}

func TestErrorOfTheClientIsAnsweredAsItIsAndNotLogged(t *testing.T) {
	t.Parallel()
	got, lines := failing(t, fmt.Errorf("pay order: %w", &Error{409, "order_cancelled", "the order is cancelled"}))
	p := got.problem(t)
	if p.Status != 409 || p.Code != "order_cancelled" || p.Detail != "the order is cancelled" {
		t.Errorf("problem = %+v, want 409 order_cancelled", p)
	}
	if len(lines) != 0 {
		t.Errorf("logged: %s", lines)
	}
}

func TestUnexpectedErrorIsAnInternalOneAndIsLoggedOnce(t *testing.T) {
	t.Parallel()
	got, lines := failing(t, errors.New("read catalogue: index out of order"))
	p := got.problem(t)
	if p.Status != 500 || p.Code != "internal" || strings.Contains(got.body, "catalogue") {
		t.Errorf("answer = %s, want 500 internal without the reason", got.body)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "read catalogue: index out of order") ||
		!strings.Contains(lines[0], `"level":"ERROR"`) || !strings.Contains(lines[0], `"route":"/v1/orders/{id}"`) {
		t.Errorf("logged: %s; want the reason and the route, once", lines)
	}
}

func TestUnknownOutcomeAsksForARepetitionUnderTheSameKey(t *testing.T) {
	t.Parallel()
	got, lines := failing(t, fmt.Errorf("place order: %w", postgres.ErrUnknownOutcome))
	p := got.problem(t)
	if p.Status != 503 || p.Code != "outcome_unknown" || !strings.Contains(p.Detail, "same Idempotency-Key") {
		t.Errorf("problem = %+v, want 503 outcome_unknown that says what to do", p)
	}
	if got.header.Get("Retry-After") == "" || len(lines) != 1 || !strings.Contains(lines[0], `"level":"ERROR"`) {
		t.Errorf("Retry-After = %q, logged: %s; want both", got.header.Get("Retry-After"), lines)
	}
}

func TestDatabaseOutOfReachIsUnavailable(t *testing.T) {
	t.Parallel()
	_, err := pgx.Connect(t.Context(), "postgres://shop:geheim@"+porttest.Free(t)+"/shop")
	if err == nil {
		t.Fatal("something answers at a free port")
	}
	got, lines := failing(t, fmt.Errorf("read order: %w", err))
	if p := got.problem(t); p.Status != 503 || p.Code != "unavailable" || got.header.Get("Retry-After") == "" {
		t.Errorf("problem = %+v, Retry-After %q; want 503 unavailable and a time", p, got.header.Get("Retry-After"))
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `"level":"WARN"`) || strings.Contains(lines[0], "geheim") {
		t.Errorf("logged: %s; want one warning without the password", lines)
	}
}

func TestExhaustedPoolIsUnavailable(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := postgres.InTx(ctx, pool, func(pgx.Tx) error { return nil })
	got, _ := failing(t, err)
	if p := got.problem(t); p.Status != 503 || p.Code != "unavailable" {
		t.Errorf("%v: problem = %+v, want 503 unavailable", err, p)
	}
}

// C60: PostgreSQL quotes in an error what it was given.
func TestValueThatTheDatabaseQuotesIsNotLogged(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	_, err := pool.Exec(t.Context(), `SELECT ($1::text)::int`, "mei@example.org")
	if err == nil || !strings.Contains(err.Error(), "mei@example.org") {
		t.Fatalf("%v: this test wants an error that quotes the value", err)
	}
	got, lines := failing(t, fmt.Errorf("read points: %w", err))
	if p := got.problem(t); p.Status != 500 {
		t.Errorf("problem = %+v, want 500", p)
	}
	if len(lines) != 1 || strings.Contains(lines[0], "mei@") || !strings.Contains(lines[0], `"sqlstate":"22P02"`) {
		t.Errorf("logged: %s; want the SQLSTATE and not the value", lines)
	}
}

func TestClientThatHangsUpIsNoWarning(t *testing.T) {
	t.Parallel()
	route := "/hang-up/" + rand.Text()
	arrived, answered := make(chan struct{}), make(chan struct{})
	r := NewRouter("shop")
	r.Get(route, func(w http.ResponseWriter, r *http.Request) {
		defer close(answered)
		close(arrived)
		<-r.Context().Done()
		WriteError(w, r, fmt.Errorf("read order: %w", r.Context().Err()))
	})
	conn := dial(t, startServer(t, r, defaultLimits).addr)
	if _, err := conn.Write([]byte("GET " + route + " HTTP/1.1\r\nHost: shop\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-arrived
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-answered
	for _, line := range logs.linesWith(route) {
		if !strings.Contains(line, `"level":"DEBUG"`) {
			t.Errorf("logged: %s", line)
		}
	}
}
