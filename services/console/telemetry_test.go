package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"orderpaid/operator"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/pgtest"
)

// What one server alone never shows: a replica of the stream that is behind.
func TestTheBoardExportsHowFarAReplicaIsBehind(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	s := &Service{}
	s.board.Store(&Board{})
	observed, err := s.observeBoard(metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = observed.Unregister() }() // it never fails
	if got := exported(t, reader, "shop_stream_replica_lag"); len(got) != 0 {
		t.Errorf("got %v before anything was read, want nothing", got)
	}
	for _, lag := range []int64{0, 1700} {
		s.board.Store(&Board{At: time.Now(), Stream: natsbroker.Status{Lag: uint64(lag)}})
		if got := exported(t, reader, "shop_stream_replica_lag"); len(got) != 1 || got[0].Value != lag {
			t.Errorf("got %v, want %d", got, lag)
		}
	}
}

// C101: a durable that is ahead of its stream has nothing pending and nothing
// that fails, so this must be seen.
func TestADurableThatIsAheadOfTheStreamIsExportedAndShown(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	s := newPages(t, http.NotFoundHandler())
	s.public, s.pool = true, pgtest.New(t, "console")
	observed, err := s.observeBoard(metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = observed.Unregister() }() // it never fails
	for _, ahead := range []int64{0, 95} {
		s.board.Store(&Board{At: time.Now(), Stream: natsbroker.Status{Consumers: []natsbroker.DurableStatus{{Durable: "points-awarder", Ahead: uint64(ahead)}}}})
		if got := exported(t, reader, "shop_durable_ahead"); len(got) != 1 || got[0].Value != ahead {
			t.Errorf("got %v, want %d", got, ahead)
		}
		if got, want := strings.Contains(get(t, s, "/live").Body.String(), "ahead of the stream by 95"), ahead == 95; got != want {
			t.Errorf("ahead by %d: the live page says so: %v, want %v", ahead, got, want)
		}
	}
}

func exported(t *testing.T, reader *metric.ManualReader, name string) []metricdata.DataPoint[int64] {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if gauge, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == name {
				return gauge.DataPoints
			}
		}
	}
	return nil
}

// A service that does not answer must not look like one without differences.
func TestWhatReconciliationFindsIsExportedUntilItIsGoneAndItsAgeGrowsWhileItIsIncomplete(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	c := &comparer{began: time.Now().Add(-time.Hour)}
	c.last.Store(&comparison{})
	observed, err := c.observe(metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = observed.Unregister() }() // it never fails
	lost := operator.Finding{Check: operator.CheckLost, Service: "order"}
	for _, run := range []struct {
		what     string
		report   operator.Report
		findings int64
		complete bool
	}{
		{"two are lost and a service is silent", operator.Report{Findings: []operator.Finding{lost, lost}, Silent: []operator.Silence{{Service: "points"}}}, 2, false},
		{"one is lost", operator.Report{Findings: []operator.Finding{lost}}, 1, true},
		{"the service with it is silent", operator.Report{Silent: []operator.Silence{{Service: "order"}}}, 1, true},
		{"the run ends early", operator.Report{Cut: true}, 1, true},
		{"nothing is lost any more", operator.Report{}, 0, true},
	} {
		c.note(run.report, time.Now())
		if got := exported(t, reader, "shop_reconcile_findings"); len(got) != 1 || got[0].Value != run.findings {
			t.Errorf("%s: got %v, want one series of %d", run.what, got, run.findings)
		}
		if got := c.last.Load().complete.IsZero(); got == run.complete {
			t.Errorf("%s: complete is %v, want %v", run.what, !got, run.complete)
		}
	}
}

func TestReconciliationsThatCannotOverlapAreRefused(t *testing.T) {
	t.Parallel()
	peers := opsapi.Flags{OpsPeers: map[string]string{"order": "http://127.0.0.1:1"}}
	for want, cfg := range map[string]Config{
		"at least 1s":       {Flags: peers, ReconcileEvery: time.Millisecond, ReconcileWindow: time.Hour, ReconcileSample: 100},
		"they must overlap": {Flags: peers, ReconcileEvery: 6 * time.Minute, ReconcileWindow: 10 * time.Minute, ReconcileSample: 100},
		"at most 10m0s":     {Flags: peers, ReconcileEvery: 15 * time.Minute, ReconcileWindow: time.Hour, ReconcileSample: 100},
		"between 1 and 100": {Flags: peers, ReconcileEvery: time.Minute, ReconcileWindow: time.Hour},
	} {
		if _, err := newComparer(nil, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A run that is cut off has compared nothing, and somebody must be able to read
// why its age grows.
func TestAReconciliationThatTakesTooLongIsLogged(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ops/service" {
			_, _ = w.Write([]byte("{}")) // the run fails without it
			return
		}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	c, err := newComparer(nil, Config{Flags: opsapi.Flags{OpsPeers: map[string]string{"order": server.URL}},
		ReconcileEvery: time.Minute, ReconcileWindow: time.Hour, ReconcileSample: 100})
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	c.log, c.limit = slog.New(slog.NewTextHandler(&logged, nil)), 500*time.Millisecond
	c.compare(t.Context())
	if got := logged.String(); !strings.Contains(got, "could not look") || !strings.Contains(got, context.DeadlineExceeded.Error()) {
		t.Errorf("got the log %q, want that the run took too long", got)
	}
}

func TestTheAlarmOfDifferencesWaitsForASecondRun(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(raw), "alert: DifferencesFound")
	found := regexp.MustCompile(`for: (\w+)`).FindStringSubmatch(rule)
	if found == nil {
		t.Fatal("the rule has no time to wait")
	}
	if wait, err := time.ParseDuration(found[1]); err != nil || wait <= compareAtMost {
		t.Errorf("got %s to wait, want more than %v, the most between two runs", found[1], compareAtMost)
	}
}
