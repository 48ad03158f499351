package httpserver

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// shop returns a router as a service would build it.
func shop() chi.Router {
	r := NewRouter("shop")
	r.Get("/v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"id": chi.URLParam(r, "id"), "title": "手机壳 & more"})
	})
	r.Post("/v1/orders", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	r.Put("/v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	r.Get("/panic/{id}", func(http.ResponseWriter, *http.Request) { panic("mei@example.org cannot be parsed") })
	r.Get("/panic-late", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"half":`))
		panic("late")
	})
	r.Get("/deadline", func(w http.ResponseWriter, r *http.Request) {
		end, ok := r.Context().Deadline()
		WriteJSON(w, http.StatusOK, ok && time.Until(end) <= requestTimeout)
	})
	return r
}

func TestAnswerCarriesJSONAndSecurityHeaders(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	for _, path := range []string{"/v1/orders/1", "/nowhere"} {
		got := srv.do(t, "GET", path, "")
		for name, want := range map[string]string{
			"X-Content-Type-Options":       "nosniff",
			"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
		} {
			if got := got.header.Get(name); got != want {
				t.Errorf("GET %s: %s = %q, want %q", path, name, got, want)
			}
		}
	}
	got := srv.do(t, "GET", "/v1/orders/1", "")
	if want := `{"id":"1","title":"手机壳 & more"}` + "\n"; got.status != 200 || got.body != want || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("GET = %+v, want 200 with %s", got, want)
	}
}

func TestHeadIsAnsweredLikeGetWithoutBody(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	got := srv.do(t, "HEAD", "/v1/orders/1", "")
	if got.status != 200 || got.body != "" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD = %+v, want 200 and headers only", got)
	}
}

func TestUnknownPathIsAProblem(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	p := srv.do(t, "GET", "/v1/nothing?email=mei@example.org", "").problem(t)
	if p.Status != 404 || p.Code != "route_not_found" || len(p.TraceID) != 32 {
		t.Errorf("problem = %+v, want 404 route_not_found with a trace id", p)
	}
}

func TestWrongMethodIsAProblemThatNamesTheRightOnes(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	for _, tc := range []struct{ method, path, allow string }{
		{"DELETE", "/v1/orders/1", "GET, HEAD, PUT"},
		{"GET", "/v1/orders", "POST"},
		{"BREW", "/v1/orders", "POST"},
	} {
		got := srv.do(t, tc.method, tc.path, "")
		if p := got.problem(t); p.Status != 405 || p.Code != "method_not_allowed" {
			t.Errorf("%s %s: problem = %+v, want 405 method_not_allowed", tc.method, tc.path, p)
		}
		if allow := got.header.Get("Allow"); allow != tc.allow {
			t.Errorf("%s %s: Allow = %q, want %q", tc.method, tc.path, allow, tc.allow)
		}
	}
}

func TestEveryRequestHasADeadline(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	if got := srv.do(t, "GET", "/deadline", ""); got.body != "true\n" {
		t.Errorf("body = %q, want true", got.body)
	}
}

func TestPanicCostsOneRequestAndLeaksNothing(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	trace, traceParent := newTrace()
	p := srv.do(t, "GET", "/panic/4711", "", "traceparent", traceParent).problem(t)
	if p.Status != 500 || p.Code != "internal" || p.TraceID != trace {
		t.Errorf("problem = %+v, want 500 internal with trace id %s", p, trace)
	}
	line := strings.Join(logs.linesWith(trace), "")
	if !strings.Contains(line, "handler panicked") || !strings.Contains(line, "router_test.go") {
		t.Errorf("log = %s, want the panic with its stack", line)
	}
	if strings.Contains(line, "mei@") || strings.Contains(line, "4711") {
		t.Errorf("log repeats input: %s", line)
	}
	if got := srv.do(t, "GET", "/v1/orders/1", ""); got.status != 200 {
		t.Errorf("the next request = %+v, want 200", got)
	}
}

func TestPanicBehindHalfAnAnswerCutsTheConnection(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	if got := srv.do(t, "GET", "/panic-late", ""); got.err == nil {
		t.Errorf("answer = %+v, want a broken one: the client must not take half a document for a whole one", got)
	}
}

func TestRouteNamesTheSpanAndNothingOfTheClientIsInIt(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	trace, traceParent := newTrace()
	srv.do(t, "GET", "/v1/orders/ord_4711?email=mei@example.org", "",
		"traceparent", traceParent, "X-Forwarded-For", "203.0.113.9", "User-Agent", "Mei's phone")
	span := spanOf(t, trace)
	if got, want := span.Name(), "GET /v1/orders/{id}"; got != want {
		t.Errorf("span = %q, want %q", got, want)
	}
	attributes := map[string]string{}
	for _, a := range span.Attributes() {
		attributes[string(a.Key)] = a.Value.String()
	}
	if attributes["http.route"] != "/v1/orders/{id}" || attributes["http.response.status_code"] != "200" {
		t.Errorf("attributes = %v, want route and status", attributes)
	}
	for key, value := range attributes {
		for _, personal := range []string{"4711", "mei", "Mei", "203.0.113.9", "127.0.0.1"} {
			if strings.Contains(value, personal) {
				t.Errorf("%s = %q holds something of the client", key, value)
			}
		}
	}
}

func TestRequestIsLoggedByRouteAndTrace(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	trace, traceParent := newTrace()
	srv.do(t, "GET", "/v1/orders/ord_4711?email=mei@example.org", "", "traceparent", traceParent)
	line := strings.Join(logs.linesWith(trace), "")
	for _, want := range []string{`"level":"DEBUG"`, `"method":"GET"`, `"route":"/v1/orders/{id}"`, `"status":200`, `"duration":`} {
		if !strings.Contains(line, want) {
			t.Errorf("log = %s, want %s in it", line, want)
		}
	}
	if strings.Contains(line, "4711") || strings.Contains(line, "mei") {
		t.Errorf("log repeats input: %s", line)
	}
}

func TestMetricsAreLabelledByRouteAndNotByTheClient(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	srv.do(t, "GET", "/v1/orders/ord_4711", "", "Host", "chosen-by-the-client.example")
	srv.do(t, "GET", "/ord_4711/ord_4712", "")
	rec := httptest.NewRecorder()
	opsHandler(nil).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	lines := slices.Collect(strings.Lines(rec.Body.String()))
	requests := slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "http_server_request_duration_seconds_count") && strings.Contains(line, `http_route="/v1/orders/{id}"`)
	})
	if requests < 0 {
		t.Errorf("no http_server_request_duration_seconds_count for the route in:\n%s", rec.Body)
	}
	if text := rec.Body.String(); strings.Contains(text, "4711") || strings.Contains(text, "chosen-by-the-client") {
		t.Errorf("metrics repeat input:\n%s", text)
	}
}

// newTrace returns a sampled trace context that nobody else has.
func newTrace() (traceID, traceParent string) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	traceID = hex.EncodeToString(id[:])
	return traceID, "00-" + traceID + "-00f067aa0ba902b7-01"
}

// spanOf returns the server's span of a request whose answer has arrived: a
// small answer is sent when the handler and all of its middleware have returned.
func spanOf(t *testing.T, traceID string) sdktrace.ReadOnlySpan {
	t.Helper()
	for _, span := range spans.Ended() {
		if span.SpanContext().TraceID().String() == traceID {
			return span
		}
	}
	t.Fatalf("no span ended in trace %s", traceID)
	return nil
}
