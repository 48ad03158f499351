package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/telemetry"
)

// readyTimeout bounds one readiness check. A dependency that needs longer
// cannot serve a request in time either.
const readyTimeout = 2 * time.Second

// RunOps serves what operators and orchestrators ask, until ctx is done:
//
//	/livez    200 while the process can answer at all. It checks nothing else:
//	          restarting a process does not mend its database.
//	/readyz   200 when every check returns nil within 2 seconds, else 503.
//	          ?exclude=NAME leaves one out, as with the servers of Kubernetes.
//	/metrics  Prometheus.
//	/ops/...  what mount adds, on a router like that of [NewRouter].
//
// Keep addr private: readiness names what is broken, and metrics tell how the
// business goes.
func RunOps(ctx context.Context, addr string, checks []Check, mount ...func(chi.Router)) error {
	return Run(ctx, addr, opsHandler(checks, mount...))
}

// A Check asks for one thing that a program cannot do all of its work without.
type Check struct {
	Name string
	Ask  func(context.Context) error
}

func opsHandler(checks []Check, mount ...func(chi.Router)) http.Handler {
	mux := http.NewServeMux()
	if len(mount) > 0 {
		router := NewRouter("ops")
		for _, add := range mount {
			add(router)
		}
		mux.Handle("/ops/", router)
	}
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, health{Status: "alive"})
	})
	mux.Handle("GET /readyz", &readyz{checks: checks, broken: make([]bool, len(checks))})
	mux.Handle("GET /metrics", telemetry.Handler())
	return mux
}

type health struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"` // what is not ready
}

type readyz struct {
	checks []Check

	mu     sync.Mutex
	broken []bool // what the last look at each found: only changes are logged
}

func (h *readyz) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	excluded := r.URL.Query()["exclude"]
	for _, name := range excluded {
		if !slices.ContainsFunc(h.checks, func(c Check) bool { return c.Name == name }) { // a misspelt one would never be noticed
			WriteJSON(w, http.StatusBadRequest, health{Status: "unknown", Reason: "exclude is one of " + strings.Join(h.names(), ", ")})
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	results := h.ask(ctx, excluded)
	if r.Context().Err() != nil {
		return // the asker has gone: this says nothing about readiness
	}
	h.log(ctx, results)
	var errs []error
	for i, result := range results {
		if result.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.checks[i].Name, result.err))
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		WriteJSON(w, http.StatusServiceUnavailable, health{Status: "not ready", Reason: strings.ReplaceAll(err.Error(), "\n", "; ")})
		return
	}
	WriteJSON(w, http.StatusOK, health{Status: "ready"})
}

func (h *readyz) names() []string {
	names := make([]string, len(h.checks))
	for i, c := range h.checks {
		names[i] = c.Name
	}
	return names
}

// A result is what one check has answered, if it was asked.
type result struct {
	asked bool
	err   error
}

// ask makes all checks at the same time: one that hangs must not hide another.
func (h *readyz) ask(ctx context.Context, excluded []string) []result {
	results := make([]result, len(h.checks))
	var all sync.WaitGroup
	for i, c := range h.checks {
		if !slices.Contains(excluded, c.Name) {
			all.Go(func() { results[i] = result{true, c.Ask(ctx)} })
		}
	}
	all.Wait()
	return results
}

// log tells what has changed of each check since somebody last asked for it.
// The probes of an orchestrator leave some out, each its own, so that no look
// at all of them may ever be made.
func (h *readyz) log(ctx context.Context, results []result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range results {
		broken := r.err != nil
		if !r.asked || h.broken[i] == broken {
			continue
		}
		h.broken[i] = broken
		if broken {
			slog.WarnContext(ctx, "not ready", "check", h.checks[i].Name, "error", r.err)
		} else {
			slog.InfoContext(ctx, "ready again", "check", h.checks[i].Name)
		}
	}
}
