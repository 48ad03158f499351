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
	limit time.Duration // of one run
	began time.Time
	last  atomic.Pointer[comparison]
	log   *slog.Logger
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
	case cfg.ReconcileEvery > compareAtMost:
		return nil, fmt.Errorf("a reconciliation every %v: at most %v, or the alarms fire before a second run has looked", cfg.ReconcileEvery, compareAtMost)
	case cfg.ReconcileWindow < 2*cfg.ReconcileEvery:
		return nil, fmt.Errorf("reconciliations every %v look back %v: they must overlap, so at least twice as far", cfg.ReconcileEvery, cfg.ReconcileWindow)
	case cfg.ReconcileSample < 1 || cfg.ReconcileSample > 100:
		return nil, fmt.Errorf("reconciliations of %d %% of the orders: between 1 and 100", cfg.ReconcileSample)
	}
	fleet, err := operator.NewFleet(cfg.Flags.OpsPeers, cfg.OpsPeerToken, 0)
	if err != nil {
		return nil, err
	}
	c := &comparer{fleet: fleet, every: cfg.ReconcileEvery, limit: compareTimeout, began: time.Now(), log: slog.Default(),
		cfg: operator.ReconcileConfig{Window: cfg.ReconcileWindow, Deadline: cfg.ReconcileInFlight, Sample: cfg.ReconcileSample, Broker: broker}}
	c.last.Store(&comparison{})
	return c, nil
}

// compareAtMost is what the alarms take for granted: DifferencesFound waits
// longer, so that two runs have seen what it tells of, and ReconciliationLate
// waits for more than two of them.
const compareAtMost = 10 * time.Minute

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
	running, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	report, err := c.fleet.Reconcile(running, c.cfg)
	if err != nil {
		if ctx.Err() == nil { // of the process; a run that took too long has not looked either
			c.log.Warn("the reconciliation could not look", "error", err)
		}
		return
	}
	c.note(report, time.Now())
}

// note keeps what a run has found. Services that did not answer leave it
// incomplete: then what was found before still counts, because nobody has seen
// it gone, and the age of the last complete run grows.
func (c *comparer) note(report operator.Report, now time.Time) {
	last := c.last.Load()
	next := comparison{complete: last.complete, findings: map[difference]int64{}}
	for _, f := range report.Findings {
		next.findings[difference{f.Check, f.Service}]++
	}
	complete := len(report.Silent) == 0 && !report.Cut
	if complete {
		next.complete = now
	}
	for d, n := range last.findings {
		if complete { // gone is 0, and not absent: an alarm must see it go
			n = 0
		}
		next.findings[d] = max(next.findings[d], n)
	}
	c.last.Store(&next)
}
