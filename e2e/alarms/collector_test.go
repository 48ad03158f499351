package alarms

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A traces is an OTLP collector: it keeps every span that the shop's processes
// export.
type traces struct {
	server *httptest.Server

	mu    sync.Mutex
	spans []*tracepb.Span
	raw   strings.Builder // as it came, for a search through everything that is in it
	wrong error
}

func startCollector(t *testing.T) *traces {
	t.Helper()
	c := &traces{}
	c.server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // a process was killed while it told
		}
		var export collector.ExportTraceServiceRequest
		err = proto.Unmarshal(body, &export)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.wrong = err
		}
		c.raw.Write(body)
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.server.Close)
	return c
}

// env makes a process export to c, soon.
func (c *traces) env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.server.URL, "OTEL_BSP_SCHEDULE_DELAY=300"}
}

func (c *traces) find(is func(*tracepb.Span) bool) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*tracepb.Span
	for _, s := range c.spans {
		if is(s) {
			found = append(found, s)
		}
	}
	return found
}

// requireOneTraceFromHTTPToEffect follows the order's payment: the request that
// took it, the batch that published it, the groups that applied it, and the
// mail, each of which is linked to the request's trace.
func (c *traces) requireOneTraceFromHTTPToEffect(t *testing.T) {
	t.Helper()
	callbacks := c.find(func(s *tracepb.Span) bool { return s.GetName() == "POST /v1/webhooks/payments" })
	if len(callbacks) == 0 {
		t.Fatal("there is no span of a payment's callback")
	}
	paths := map[string]bool{}
	for _, callback := range callbacks {
		id := callback.GetTraceId()
		for _, s := range c.find(func(s *tracepb.Span) bool {
			return slices.ContainsFunc(s.GetLinks(), func(l *tracepb.Span_Link) bool { return string(l.GetTraceId()) == string(id) })
		}) {
			paths[s.GetName()] = true
		}
	}
	for _, want := range []string{"publish order", "process points-awarder", "process notify-sender", "process search-indexer", "process console-auditor", "send mail"} {
		if !paths[want] {
			t.Errorf("no span %q is linked to the trace of a payment's callback, such as %s", want, hex.EncodeToString(callbacks[0].GetTraceId()))
		}
	}
}

// requireEvents looks for what happened to events on their way, each with the
// delay after which it goes on.
func (c *traces) requireEvents(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		found := c.find(func(s *tracepb.Span) bool {
			return slices.ContainsFunc(s.GetEvents(), func(e *tracepb.Span_Event) bool {
				delayed := slices.ContainsFunc(e.GetAttributes(), func(a *common.KeyValue) bool { return a.GetKey() == "shop.delay_seconds" })
				return e.GetName() == name && delayed
			})
		})
		if len(found) == 0 {
			t.Errorf("no span has an event %s with a delay", name)
		}
	}
}

// requireReplayIsLinked finds the span of a replay.
func (c *traces) requireReplayIsLinked(t *testing.T) {
	t.Helper()
	eventually(t, "a replay's span that is linked", func() bool {
		return len(c.find(func(s *tracepb.Span) bool {
			return len(s.GetLinks()) > 0 && slices.ContainsFunc(s.GetAttributes(), func(a *common.KeyValue) bool { return a.GetKey() == "shop.replay_id" })
		})) > 0
	})
}
