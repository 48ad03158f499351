package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"orderpaid/platform/telemetry"
)

// What Start sets is global, so each scenario runs in a process of its own:
// this binary, with roleEnv naming the scenario.
const roleEnv = "TELEMETRY_TEST_ROLE"

var roles = map[string]func(ctx context.Context) error{
	"report": report,
	"trace":  traceOneCall,
	"broken": breakTelemetry,
	"flood":  flood,
}

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	shutdown, err := telemetry.Start(ctx, telemetry.Config{Service: "points", Version: "v1.2.3", LogTo: os.Stdout})
	if err == nil {
		err = role(ctx)
		flushCtx, cancel := context.WithTimeout(ctx, 3*time.Second)
		err = errors.Join(err, shutdown(flushCtx))
		cancel()
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// play runs a scenario and returns what it logged, line by line.
func play(t *testing.T, role string, env ...string) []map[string]any {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(env, roleEnv+"="+role)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v, stderr %q, stdout:\n%s", role, err, stderr.String(), out)
	}
	var lines []map[string]any
	for line := range strings.Lines(string(out)) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		lines = append(lines, fields)
	}
	return lines
}

const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled     = "00-" + callerTrace + "-00f067aa0ba902b7-01"
)

// report logs with and without a trace, and prints /metrics as log lines.
func report(ctx context.Context) error {
	slog.Info("outside")
	slog.Debug("not to be seen")
	ctx, span := otel.Tracer("test").Start(ctx, "award")
	slog.With("kind", "OrderPaid.v1").InfoContext(ctx, "inside", "recording", span.IsRecording())
	span.End()

	headers := telemetry.Carrier{}
	otel.GetTextMapPropagator().Inject(ctx, headers)
	slog.Info("outgoing", "traceparent", headers.Get("traceparent"))

	incoming := otel.GetTextMapPropagator().Extract(context.Background(), telemetry.Carrier{"traceparent": {sampled}})
	incoming, span = otel.Tracer("test").Start(incoming, "award")
	span.End()
	headers = telemetry.Carrier{}
	otel.GetTextMapPropagator().Inject(incoming, headers)
	slog.Info("passed on", "traceparent", headers.Get("traceparent"))

	counter, err := otel.Meter("test").Int64Counter("shop.points.awarded")
	if err != nil {
		return err
	}
	for i := range 2000 { // a label that must not be one
		counter.Add(ctx, 1, metric.WithAttributes(attribute.Int("order", i)))
	}
	rec := httptest.NewRecorder()
	telemetry.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	slog.Info("metrics", "text", rec.Body.String())
	return nil
}

func TestLogLinesAreJSONAndCarryTheTrace(t *testing.T) {
	t.Parallel()
	lines := play(t, "report")
	outside, inside := lines[0], lines[1]
	if outside["msg"] != "outside" || outside["service"] != "points" || outside["trace_id"] != nil {
		t.Errorf("line = %v, want the service and no trace", outside)
	}
	id, _ := inside["trace_id"].(string)
	span, _ := inside["span_id"].(string)
	if inside["msg"] != "inside" || inside["kind"] != "OrderPaid.v1" || len(id) != 32 || len(span) != 16 {
		t.Errorf("line = %v, want a trace_id and a span_id", inside)
	}
}

func TestWithoutCollectorNothingIsRecordedAndTracesGoOn(t *testing.T) {
	t.Parallel()
	lines := play(t, "report")
	inside, outgoing, passedOn := lines[1], lines[2], lines[3]
	if inside["recording"] != false {
		t.Error("a span is recorded that nobody will read")
	}
	traceparent, _ := outgoing["traceparent"].(string)
	if want := "00-" + inside["trace_id"].(string) + "-" + inside["span_id"].(string) + "-00"; traceparent != want {
		t.Errorf("traceparent = %q, want %q", traceparent, want)
	}
	traceparent, _ = passedOn["traceparent"].(string)
	if !strings.HasPrefix(traceparent, "00-"+callerTrace+"-") || !strings.HasSuffix(traceparent, "-01") {
		t.Errorf("traceparent = %q, want the caller's trace and its decision to sample", traceparent)
	}
}

func TestMetricsAreServedAndTheirLabelsBounded(t *testing.T) {
	t.Parallel()
	lines := play(t, "report")
	text, _ := lines[4]["text"].(string)
	for _, want := range []string{"go_goroutines", "shop_points_awarded_total{", `otel_metric_overflow="true"`, `service_name="points"`, `service_version="v1.2.3"`} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	if n := strings.Count(text, "\nshop_points_awarded_total{"); n > 500 {
		t.Errorf("a runaway label makes %d series, want at most 500", n)
	}
}

// traceOneCall makes one span, which shutdown sends.
func traceOneCall(ctx context.Context) error {
	_, span := otel.Tracer("test").Start(ctx, "award")
	slog.Info("span", "trace", span.SpanContext().TraceID().String())
	span.End()
	return nil
}

func TestCollectorReceivesSpansByTheEnvironment(t *testing.T) {
	t.Parallel()
	received := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	lines := play(t, "trace", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=demo")
	got := <-received
	id, err := trace.TraceIDFromHex(lines[0]["trace"].(string))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/v1/traces ", "award", "points", "v1.2.3", "demo", string(id[:])} {
		if !strings.Contains(got, want) {
			t.Errorf("the collector received %q, want %q in it", got, want)
		}
	}
}

// flood ends more spans than may wait for a collector.
func flood(ctx context.Context) error {
	started := time.Now()
	for range 10_000 {
		_, span := otel.Tracer("test").Start(ctx, "award")
		span.End()
	}
	if took := time.Since(started); took > 2*time.Second {
		return fmt.Errorf("the work was held up for %v", took)
	}
	return nil
}

// C99: the collector takes connections and never answers. The work goes on
// without it, and so does the end of the process.
func TestACollectorThatNeverAnswersHoldsUpNothing(t *testing.T) {
	t.Parallel()
	collector, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer collector.Close() // until then the kernel takes connections
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=flood", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+collector.Addr().String())
	started := time.Now()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "deadline exceeded") || strings.Contains(string(out), "held up") {
		t.Errorf("got %v, want spans that were given up at the deadline:\n%s", err, out)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("took %v with a deadline of 3 s", took)
	}
}

// breakTelemetry hands the SDK an error.
func breakTelemetry(context.Context) error {
	otel.Handle(errors.New("collector is away"))
	return nil
}

func TestErrorsOfTheSDKGoToTheLog(t *testing.T) {
	t.Parallel()
	lines := play(t, "broken")
	if len(lines) != 1 || lines[0]["level"] != "WARN" || lines[0]["error"] != "collector is away" {
		t.Errorf("log = %v, want one warning", lines)
	}
}

func TestHandlerWithoutStartServesNothing(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	telemetry.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != 200 || rec.Body.Len() != 0 {
		t.Errorf("answer = %d %q, want 200 and nothing", rec.Code, rec.Body)
	}
}

func TestCarrierKeepsTheCaseOfHeaderNames(t *testing.T) {
	t.Parallel()
	header := nats.Header{"Traceparent": {"wrong case"}}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	propagation.TraceContext{}.Inject(ctx, telemetry.Carrier(header))
	want := "00-01000000000000000000000000000000-0200000000000000-01"
	if got := header["traceparent"]; len(got) != 1 || got[0] != want {
		t.Errorf("header = %v, want traceparent %s", header, want)
	}
	if header.Get("Traceparent") != "wrong case" {
		t.Errorf("header = %v: another header was touched", header)
	}
	got := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), telemetry.Carrier(header)))
	if got.TraceID() != (trace.TraceID{1}) || !got.IsRemote() {
		t.Errorf("extracted %v, want trace 01…", got)
	}
}

func TestRubbishInTraceHeadersIsNoTrace(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"empty": "", "truncated": sampled[:30], "all zero": "00-" + strings.Repeat("0", 32) + "-" + strings.Repeat("0", 16) + "-01",
		"upper case": strings.ToUpper(sampled), "version ff": "ff" + sampled[2:], "4 KB": strings.Repeat("x", 4096),
	} {
		ctx := propagation.TraceContext{}.Extract(t.Context(), telemetry.Carrier{"traceparent": {value}})
		if got := trace.SpanContextFromContext(ctx); got.IsValid() {
			t.Errorf("%s: extracted %v", name, got)
		}
	}
	ctx := propagation.TraceContext{}.Extract(t.Context(), telemetry.Carrier{"Xraceparent": {sampled}, "tracestate": nil})
	if got := trace.SpanContextFromContext(ctx); got.IsValid() {
		t.Errorf("Xraceparent: extracted %v", got)
	}
}
