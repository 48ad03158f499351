package httpserver

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
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
//	/readyz   200 when ready returns nil within 2 seconds, else 503.
//	/metrics  Prometheus.
//	/ops/...  what mount adds, on a router like that of [NewRouter].
//
// Keep addr private: readiness names what is broken, and metrics tell how the
// business goes.
func RunOps(ctx context.Context, addr string, ready func(context.Context) error, mount ...func(chi.Router)) error {
	return Run(ctx, addr, opsHandler(ready, mount...))
}

func opsHandler(ready func(context.Context) error, mount ...func(chi.Router)) http.Handler {
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
	mux.Handle("GET /readyz", &readyz{check: ready})
	mux.Handle("GET /metrics", telemetry.Handler())
	return mux
}

type health struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"` // what is not ready
}

type readyz struct {
	check  func(context.Context) error
	broken atomic.Bool // what the last check found: only changes are logged
}

func (h *readyz) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	err := h.check(ctx)
	if r.Context().Err() != nil {
		return // the asker has gone: this says nothing about readiness
	}
	if err != nil {
		if !h.broken.Swap(true) {
			slog.WarnContext(ctx, "not ready", "error", err)
		}
		WriteJSON(w, http.StatusServiceUnavailable, health{Status: "not ready", Reason: err.Error()})
		return
	}
	if h.broken.Swap(false) {
		slog.InfoContext(ctx, "ready again")
	}
	WriteJSON(w, http.StatusOK, health{Status: "ready"})
}
