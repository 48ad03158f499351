package operator

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"orderpaid/platform/opsapi"
	"orderpaid/platform/pgtest"
	"orderpaid/services/points"
)

// Whoever tries a replay sees its report, and no lines of a service that does
// not run.
func TestASandboxLogsNothingOfTheServiceOnItsCopy(t *testing.T) {
	t.Parallel()
	logged := new(logBuffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(logged, nil)))
	var report SandboxReport
	err := runSandbox(t.Context(), SandboxConfig{Consumer: points.Sandbox, API: opsapi.Config{Service: "points"}}, pgtest.New(t, "points"),
		opsapi.ReplayRequest{Consumer: "points-awarder", From: opsapi.Selection{Source: "failures"}, Reason: "tried"}, &report)
	if err == nil || !strings.Contains(err.Error(), "nothing_selected") { // the copy has no failures, so it got as far as to choose
		t.Fatalf("got %v, want that nothing was selected", err)
	}
	if got := logged.String(); strings.Contains(got, "no tokens are configured") {
		t.Errorf("the sandbox has logged\n%s", got)
	}
}

// A logBuffer keeps what this process logs; its tests run side by side.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
