package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/trace"
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
	errUnavailable    = &Error{http.StatusServiceUnavailable, "unavailable", "nothing was changed; try again in a moment"}
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
		logFailure(r.Context(), r, answer, err)
	}
	writeProblem(w, r, answer)
}

// classify decides what an error that is not the client's looks like from
// outside.
func classify(err error) *Error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errUnavailable
	default:
		return errInternal
	}
}

func logFailure(ctx context.Context, r *http.Request, answer *Error, err error) {
	level := slog.LevelError
	if answer.Status == http.StatusServiceUnavailable {
		level = slog.LevelWarn
	}
	slog.Log(ctx, level, "request failed", "method", r.Method, "route", routeOf(r), "code", answer.Code, "error", err)
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
