package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/trace"

	"orderpaid/platform/postgres"
)

// An Error is an answer to the client: what is wrong with the request, in a
// form that programs (Code) and people (Detail) can act on. Domain errors
// become one in a single function of each service's http.go.
type Error struct {
	Status int    // HTTP status
	Code   string // stable, lower case, words joined by underscores: "body_too_large"
	Detail string // one sentence; it goes to the client and never repeats what the client sent
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Detail) }

const problemType = "application/problem+json"

// problem is the document of https://www.rfc-editor.org/rfc/rfc9457 with two
// members of our own. "instance" is left out: the path would repeat ids, and
// trace_id names the occurrence better.
type problem struct {
	Type    string `json:"type"` // about:blank: the title is the status, the code says the rest
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail,omitempty"`
	Code    string `json:"code"`
	TraceID string `json:"trace_id,omitempty"`
}

// The answers to errors that are not the client's.
var (
	errInternal       = &Error{http.StatusInternalServerError, "internal", "the request failed; tell the trace id to whoever runs this service"}
	errUnavailable    = &Error{http.StatusServiceUnavailable, "unavailable", "try again in a moment; if the request changes something, with the same Idempotency-Key"}
	errOutcomeUnknown = &Error{http.StatusServiceUnavailable, "outcome_unknown",
		"it is not known whether the change was made: repeat the request with the same Idempotency-Key"}
)

// WriteError answers with err as a problem document. An [*Error] anywhere in
// its chain is the answer as it stands. For the rest the client learns whether
// to try again, and the log, once, learns why.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	var answer *Error
	if !errors.As(err, &answer) {
		answer = classify(err)
		logFailure(r, answer, err)
	}
	writeProblem(w, r, answer)
}

// classify decides what an error that is not the client's looks like from
// outside.
func classify(err error) *Error {
	switch postgres.Classify(err) {
	case postgres.Unknown:
		return errOutcomeUnknown
	case postgres.Transient: // deadlines, an exhausted pool, lost connections, locks: nothing was committed
		return errUnavailable
	default:
		return errInternal
	}
}

// logFailure logs an error that is not the client's. One that the client can
// only repeat is a warning: the database's own alarms tell more about it.
func logFailure(r *http.Request, answer *Error, err error) {
	level := slog.LevelError
	switch {
	case errors.Is(r.Context().Err(), context.Canceled):
		level = slog.LevelDebug // the client hung up, and with that made the request fail itself
	case answer == errUnavailable:
		level = slog.LevelWarn
	}
	slog.Log(r.Context(), level, "request failed", "method", r.Method, "route", routeOf(r),
		"code", answer.Code, "sqlstate", postgres.Code(err), "error", withoutValues(err))
}

// withoutValues returns the text of err. PostgreSQL's data exceptions (SQLSTATE
// class 22, "invalid input syntax for type integer: ...") quote the value that
// they complain about; it may be personal, so their message is left out.
func withoutValues(err error) string {
	text := err.Error()
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "22") {
		text = strings.ReplaceAll(text, pgErr.Message, "message withheld")
	}
	return text
}

func writeProblem(w http.ResponseWriter, r *http.Request, e *Error) {
	if e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	p := problem{Type: "about:blank", Title: http.StatusText(e.Status), Status: e.Status, Detail: e.Detail, Code: e.Code}
	if span := trace.SpanContextFromContext(r.Context()); span.IsValid() {
		p.TraceID = span.TraceID().String()
	}
	writeDocument(w, e.Status, problemType, p)
}
