package console

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"orderpaid/operator"
	"orderpaid/platform/messaging/natsbroker"
)

// A comparer runs the reconciliation again and again, for metrics and alarms:
// a difference that nobody has asked for is found, too. It looks with the
// console's own token, which may look and not mend.
type comparer struct {
	fleet *operator.Fleet
	cfg   operator.ReconcileConfig
	every time.Duration
	began time.Time
	last  atomic.Pointer[comparison]
}

// A comparison is what the last run found.
type comparison struct {
	complete time.Time            // when a run last looked at everything; zero if none has
	findings map[difference]int64 // nil before the first run
}

// A difference is a kind of finding at a service.
type difference struct{ check, service string }

func newComparer(broker *natsbroker.Broker, cfg Config) (*comparer, error) {
	switch {
	case cfg.ReconcileEvery < time.Second:
		return nil, fmt.Errorf("a reconciliation every %v: at least 1s", cfg.ReconcileEvery)
	case cfg.ReconcileWindow < 2*cfg.ReconcileEvery:
		return nil, fmt.Errorf("reconciliations every %v look back %v: they must overlap, so at least twice as far", cfg.ReconcileEvery, cfg.ReconcileWindow)
	case cfg.ReconcileSample < 1 || cfg.ReconcileSample > 100:
		return nil, fmt.Errorf("reconciliations of %d %% of the orders: between 1 and 100", cfg.ReconcileSample)
	}
	fleet, err := operator.NewFleet(cfg.Flags.OpsPeers, cfg.OpsPeerToken, 0)
	if err != nil {
		return nil, err
	}
	c := &comparer{fleet: fleet, every: cfg.ReconcileEvery, began: time.Now(),
		cfg: operator.ReconcileConfig{Window: cfg.ReconcileWindow, Deadline: cfg.ReconcileInFlight, Sample: cfg.ReconcileSample, Broker: broker}}
	c.last.Store(&comparison{})
	return c, nil
}

// compareTimeout bounds one run: what has taken longer than this is late, and
// the alarm for that says so.
const compareTimeout = 10 * time.Minute

// watch compares until ctx is done. The distance is between two beginnings, and
// no run begins before the one before it has ended.
func (c *comparer) watch(ctx context.Context) error {
	beat := time.NewTicker(c.every)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			c.compare(ctx)
		}
	}
}

func (c *comparer) compare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	report, err := c.fleet.Reconcile(ctx, c.cfg)
	if err != nil {
		if ctx.Err() == nil {
			slog.Warn("the reconciliation could not look", "error", err)
		}
		return
	}
	c.note(report, time.Now())
}

// note keeps what a run has found. Services that did not answer leave it
// incomplete: what was found counts, and the age of the last complete run grows.
func (c *comparer) note(report operator.Report, now time.Time) {
	next := comparison{complete: c.last.Load().complete, findings: map[difference]int64{}}
	for _, f := range report.Findings {
		next.findings[difference{f.Check, f.Service}]++
	}
	if len(report.Silent) == 0 && !report.Cut {
		next.complete = now
	}
	for d := range c.last.Load().findings { // gone is 0, and not absent: an alarm must see it go
		next.findings[d] += 0
	}
	c.last.Store(&next)
}
