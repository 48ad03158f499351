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

// C136: a proxy for calls to the outside, which corporate machines put into every
// container's environment, is not asked about the program beside. The address
// that stands for this machine is none that such proxies leave out by themselves.
func TestHealthAsksNoProxy(t *testing.T) {
	t.Parallel()
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer ready.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(ready.URL, "http://"), ":")
	if out, err := health(t, "HTTP_PROXY=http://127.0.0.1:1", "http://0.0.0.0:"+port+"/readyz"); err != nil {
		t.Errorf("got %v: %s", err, out)
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
