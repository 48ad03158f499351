package process_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

func TestHealthAsksTheProgramOfTheSameEnvironment(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusOK)
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte(`{"reason":"no broker"}`))
	}))
	defer ready.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(ready.URL, "http://"), ":")
	for _, addr := range []string{"127.0.0.1:" + port, ":" + port, "0.0.0.0:" + port, "[::]:" + port} {
		if out, err := health(t, "OPS_ADDR="+addr); err != nil {
			t.Errorf("%s: %v: %s", addr, err, out)
		}
	}
	if out, err := health(t, "OPS_ADDR=", ready.URL+"/readyz"); err != nil {
		t.Errorf("by URL: %v: %s", err, out)
	}
	status.Store(http.StatusServiceUnavailable)
	if out, err := health(t, "OPS_ADDR=127.0.0.1:"+port); err == nil || !strings.Contains(string(out), "no broker") {
		t.Errorf("not ready: got %v and %q, want an error with the reason", err, out)
	}
}

func TestHealthFailsWhereNothingListens(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"OPS_ADDR=127.0.0.1:1", "OPS_ADDR="} {
		if out, err := health(t, env); err == nil {
			t.Errorf("%s: healthy, with %q", env, out)
		}
	}
}

func health(t *testing.T, env string, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command(t).Path, append([]string{"health"}, args...)...)
	cmd.Env = []string{roleEnv + "=ends", env}
	return cmd.CombinedOutput()
}
