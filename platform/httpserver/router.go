package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// requestTimeout ends the context of a request. It is shorter than the
// server's WriteTimeout, so that the answer "too slow" can still be written.
const requestTimeout = 10 * time.Second

// NewRouter returns a router that has everything but routes. service names it
// in metrics and traces.
func NewRouter(service string) chi.Router {
	r := chi.NewRouter()
	r.Use(
		securityHeaders,
		deadline(requestTimeout),
		// Inside the router, because the span's name needs the route. The
		// server's name is given, because the client chooses the Host header,
		// and with it would choose the label sets of our metrics.
		otelhttp.NewMiddleware(service, otelhttp.WithServerName(service)),
		logRequest,
		recoverPanic,
		middleware.GetHead,
	)
	r.NotFound(notFound)
	r.MethodNotAllowed(methodNotAllowed)
	return r
}

// securityHeaders sets what is right for an API. A handler that serves pages
// sets its own values over them.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store") // answers are about one customer's money
		next.ServeHTTP(w, r)
	})
}

func deadline(d time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), d)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// logRequest logs one line a request and finishes its span. It must not copy
// the request: otelhttp reads the route from the one it handed in.
func logRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			route := routeOf(r)
			describeSpan(r.Context(), route)
			status := ww.Status()
			if status == 0 {
				status = http.StatusOK // what net/http sends for a handler that wrote nothing
			}
			slog.DebugContext(r.Context(), "request", "method", r.Method, "route", route,
				"status", status, "bytes", ww.BytesWritten(), "duration", time.Since(started).String())
		}()
		next.ServeHTTP(ww, r)
	})
}

// unmatched stands for the path of a request that no route matched.
const unmatched = "unmatched"

// routeOf returns the pattern that matched, /v1/orders/{id}, or unmatched.
func routeOf(r *http.Request) string {
	if rctx := chi.RouteContext(r.Context()); rctx != nil && r.Pattern != "" {
		return rctx.RoutePattern()
	}
	return unmatched
}

// describeSpan names the route, and puts it in the place of what otelhttp took
// from the client: the path holds ids, the address and the agent are personal.
func describeSpan(ctx context.Context, route string) {
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(
		attribute.String("url.path", route),
		attribute.String("client.address", ""),
		attribute.String("network.peer.address", ""),
		attribute.String("user_agent.original", ""),
	)
	if route != unmatched { // the attribute is for routes that exist
		span.SetAttributes(attribute.String("http.route", route))
	}
}

// recoverPanic turns a panic into a 500, so that it costs one request. The log
// has the stack; the panic's value is left out, because it may quote input.
func recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause) // the handler's own way to cut the connection
			}
			slog.ErrorContext(r.Context(), "handler panicked", "route", routeOf(r),
				"panic", fmt.Sprintf("%T", cause), "stack", string(debug.Stack()))
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler) // half an answer is out: a cut connection is the only honest end
			}
			writeProblem(w, r, errInternal)
		}()
		next.ServeHTTP(w, r)
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, r, &Error{http.StatusNotFound, "route_not_found", "there is nothing at this path"})
}

// methodNotAllowed names the methods that the path has, as RFC 9110 demands;
// chi tells them only to its own handler.
func methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	routes := chi.RouteContext(r.Context()).Routes
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		found := routes.Match(chi.NewRouteContext(), method, path)
		if found || method == http.MethodHead && len(allowed) > 0 { // GetHead answers HEAD wherever there is a GET
			allowed = append(allowed, method)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeProblem(w, r, &Error{http.StatusMethodNotAllowed, "method_not_allowed", "this path has other methods: see the Allow header"})
}
