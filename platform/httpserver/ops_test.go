package httpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"orderpaid/platform/porttest"
)

func TestLivenessAsksNobody(t *testing.T) {
	t.Parallel()
	srv := startServer(t, opsHandler(broker(func(context.Context) error { return errors.New("everything is broken") })), defaultLimits)
	if got := srv.do(t, "GET", "/livez", ""); got.status != 200 || got.body != `{"status":"alive"}`+"\n" {
		t.Errorf("/livez = %+v, want 200 alive", got)
	}
}

func TestReadinessFollowsTheCheckAndLogsOnlyChanges(t *testing.T) {
	t.Parallel()
	var broken atomic.Pointer[error]
	srv := startServer(t, opsHandler(broker(func(ctx context.Context) error {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > readyTimeout {
			t.Errorf("deadline = %v, %v; want one within %s", end, ok, readyTimeout)
		}
		if err := broken.Load(); err != nil {
			return *err
		}
		return nil
	})), defaultLimits)

	reason := errors.New("away " + rand.Text())
	for _, step := range []struct {
		err    *error
		status int
		body   string
	}{
		{nil, 200, `{"status":"ready"}`},
		{&reason, 503, `{"status":"not ready","reason":"broker: ` + reason.Error() + `"}`},
		{&reason, 503, `{"status":"not ready","reason":"broker: ` + reason.Error() + `"}`},
		{nil, 200, `{"status":"ready"}`},
	} {
		broken.Store(step.err)
		if got := srv.do(t, "GET", "/readyz", ""); got.status != step.status || got.body != step.body+"\n" {
			t.Errorf("/readyz = %+v, want %d %s", got, step.status, step.body)
		}
	}
	if lines := logs.linesWith(reason.Error()); len(lines) != 1 {
		t.Errorf("logged: %q; want one line for two failed checks in a row", lines)
	}
}

func TestReadinessCheckThatHangsIsNotReady(t *testing.T) {
	t.Parallel()
	srv := startServer(t, opsHandler(broker(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})), defaultLimits)
	if got := srv.do(t, "GET", "/readyz", ""); got.status != 503 {
		t.Errorf("/readyz = %+v, want 503", got)
	}
}

// broker is a readiness that asks for one thing.
func broker(ask func(context.Context) error) []Check { return []Check{{"broker", ask}} }

func TestReadinessNamesAllThatIsAwayAndLeavesOutWhatTheAskerDoesNotNeed(t *testing.T) {
	t.Parallel()
	away := func(context.Context) error { return errors.New("away") }
	srv := startServer(t, opsHandler([]Check{{"database", func(context.Context) error { return nil }}, {"durable", away}, {"broker", away}}), defaultLimits)
	for path, want := range map[string]answer{
		"/readyz":                                {status: 503, body: `{"status":"not ready","reason":"durable: away; broker: away"}`},
		"/readyz?exclude=broker":                 {status: 503, body: `{"status":"not ready","reason":"durable: away"}`},
		"/readyz?exclude=broker&exclude=durable": {status: 200, body: `{"status":"ready"}`},
		"/readyz?exclude=brokre":                 {status: 400, body: `{"status":"unknown","reason":"exclude is one of database, durable, broker"}`},
	} {
		if got := srv.do(t, "GET", path, ""); got.status != want.status || got.body != want.body+"\n" {
			t.Errorf("%s = %+v, want %+v", path, got, want)
		}
	}
}

// The probes of Kubernetes always leave something out.
func TestAChangeOfReadinessIsLoggedWhateverTheAskerLeavesOut(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	name, reason := "database "+rand.Text(), errors.New("away "+rand.Text())
	srv := startServer(t, opsHandler([]Check{
		{"broker", func(context.Context) error { return nil }},
		{name, func(context.Context) error {
			if broken.Load() {
				return reason
			}
			return nil
		}},
	}), defaultLimits)
	for _, away := range []bool{false, true, true, false} {
		broken.Store(away)
		srv.do(t, "GET", "/readyz?exclude=broker", "")
		srv.do(t, "GET", "/readyz?exclude="+url.QueryEscape(name), "") // says nothing about it
	}
	lines := logs.linesWith(name)
	if len(lines) != 2 || !strings.Contains(lines[0], reason.Error()) || !strings.Contains(lines[1], "ready again") {
		t.Errorf("logged: %q; want that it is away, and that it is ready again", lines)
	}
}

func TestMetricsAreServedOnTheOpsListener(t *testing.T) {
	t.Parallel()
	addr := porttest.Free(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- RunOps(ctx, addr, nil) }()
	_ = dial(t, addr).Close()
	got := server{addr: addr}.do(t, "GET", "/metrics", "")
	if got.status != 200 || !strings.Contains(got.body, "go_goroutines") || !strings.Contains(got.body, `service_name="httpserver-test"`) {
		t.Errorf("/metrics = %d, %.300s; want the process's metrics", got.status, got.body)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("RunOps = %v, want nil", err)
	}
}
