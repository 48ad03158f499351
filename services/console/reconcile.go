package console

import (
	"net/http"
	"time"

	"orderpaid/operator"
)

// A reconcilePage is a run of the reconciliation, if one was asked for.
type reconcilePage struct {
	Window  string
	Windows []string
	Report  *operator.Report
	Took    time.Duration
	Repairs int // findings that a command mends
	Reason  string
	Wrong   string
	Dry     bool // the report says what a repair would do
	Done    bool // … or what it has done
}

var windows = map[string]time.Duration{"15m": 15 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour}

// getReconcile compares everything with everything, within a window, when
// somebody asks for it.
func (s *Service) getReconcile(w http.ResponseWriter, r *http.Request) {
	p := reconcilePage{Window: r.URL.Query().Get("window")}
	if _, known := windows[p.Window]; known {
		s.reconcile(r, &p)
	} else if p.Window != "" {
		s.notFound(w, r)
		return
	}
	s.showReconcile(w, r, p)
}

func (s *Service) showReconcile(w http.ResponseWriter, r *http.Request, p reconcilePage) {
	p.Windows = []string{"15m", "1h", "24h"}
	status := http.StatusOK
	if p.Wrong != "" {
		status = http.StatusUnprocessableEntity
	}
	s.render(w, r, status, "reconcile", view{Nav: "reconcile", Data: p})
}

func (s *Service) reconcile(r *http.Request, p *reconcilePage) (fleet *operator.Fleet) {
	window, known := windows[p.Window]
	fleet, err := s.fleet(r)
	if err != nil || !known {
		p.Wrong = s.text(r, "no_answer")
		return nil
	}
	started := time.Now()
	report, err := fleet.Reconcile(r.Context(), operator.ReconcileConfig{Window: window, Broker: s.broker, MaxFindings: 200})
	if err != nil {
		p.Wrong = s.opsSaid(r, err)
		return nil
	}
	for _, f := range report.Findings {
		if f.Repair != "" {
			p.Repairs++
		}
	}
	p.Report, p.Took = &report, time.Since(started)
	return fleet
}

// postReconcile mends what was found, or tells what it would do. It looks
// again first: what has come by itself since the page was made needs nothing.
func (s *Service) postReconcile(w http.ResponseWriter, r *http.Request) {
	p := reconcilePage{Window: r.PostFormValue("window"), Reason: r.PostFormValue("reason"), Dry: r.PostFormValue("action") != "repair"}
	if fleet := s.reconcile(r, &p); fleet != nil {
		err := fleet.Repair(r.Context(), p.Report, operator.RepairConfig{Reason: p.Reason, DryRun: p.Dry, Limit: 200})
		if p.Done = err == nil; err != nil {
			p.Wrong = s.opsSaid(r, err)
		}
	}
	s.showReconcile(w, r, p)
}
