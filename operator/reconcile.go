package operator

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
)

// ReconcileConfig says what to look at. The zero value looks at all of the last
// day.
type ReconcileConfig struct {
	// Window is how far back to look. Runs must overlap: a transaction that
	// commits late is older than what was read before it, so a scheduled run
	// looks back further than its interval. Nothing is remembered between runs.
	// Defaults to 24 h.
	Window time.Duration

	// Deadline is how long an event may be on its way. Younger ones are no
	// findings. Defaults to 1 min.
	Deadline time.Duration

	// Sample is the share of orders to look at, in percent; always the same
	// ones, so that a finding can be looked at again. Defaults to 100.
	Sample int

	// Broker reads the stream. Without it the stream is not compared, and the
	// report says so.
	Broker *natsbroker.Broker

	// MaxFindings ends the run early: after so many it is one big finding, and
	// a list of millions helps nobody. Defaults to 10 000.
	MaxFindings int

	// Progress is called after each page. Defaults to nothing.
	Progress func(Report)
}

func (c ReconcileConfig) withDefaults() ReconcileConfig {
	c.Window = cmp.Or(c.Window, 24*time.Hour)
	c.Deadline = cmp.Or(c.Deadline, time.Minute)
	c.Sample = cmp.Or(c.Sample, 100)
	c.MaxFindings = cmp.Or(c.MaxFindings, 10_000)
	if c.Progress == nil {
		c.Progress = func(Report) {}
	}
	return c
}

// The checks.
const (
	CheckUnstaged  = "fact without event"           // the business tables changed and nothing was staged
	CheckOrphan    = "event that nobody publishes"  // staged, and neither queued nor held nor published
	CheckQueued    = "event not published in time"  // in the queue, or held
	CheckRefused   = "event refused by the broker"  //
	CheckLost      = "published, not on the stream" // the broker has lost it
	CheckUnread    = "on the stream, not consumed"  // after the deadline, and no failure explains it
	CheckForked    = "passed over as older"         // a consumer knows later versions, which their owner has forgotten
	CheckNoEffect  = "consumed, no effect"          // an inbox row, and not the row that it stands for
	CheckNoCause   = "effect without cause"         // a row for an event that nobody staged
	CheckInvariant = "invariant"                    // what must hold in one database does not
)

// What a finding can be mended with.
const (
	RepairRepublish = "republish"
	RepairReplay    = "replay"
)

// A Finding is something that is not as it must be.
type Finding struct {
	Check    string          `json:"check"`
	Service  string          `json:"service"`            // where it shows
	Consumer string          `json:"consumer,omitempty"` // that should have done something
	Event    opsapi.EventRef `json:"event,omitzero"`
	Owner    string          `json:"owner,omitempty"` // the service whose outbox holds the event
	Says     string          `json:"says"`
	Repair   string          `json:"repair,omitempty"`   // republish or replay; empty if no command mends it
	Repaired string          `json:"repaired,omitempty"` // what was done about it, or would be
	Look     string          `json:"look,omitempty"`     // the command that shows more
}

// A Report is what a run found.
type Report struct {
	Since     time.Time `json:"since"` // later than asked for if what is older has been put away
	Until     time.Time `json:"until"`
	Shortened bool      `json:"shortened,omitempty"` // somebody asked for more than is kept
	Sample    int       `json:"sample_percent"`
	Facts     int       `json:"facts"`     // changes in business tables
	OnStream  int       `json:"on_stream"` // events compared with the stream
	Aged      int       `json:"aged"`      // too old to be on the stream still
	Handled   int       `json:"handled"`   // events compared with inboxes, once for each consumer
	Waiting   int       `json:"waiting"`   // of these, recorded as failures: known, and somebody's work
	Effects   int       `json:"effects"`
	Checks    int       `json:"invariants"`
	Findings  []Finding `json:"findings"`
	Known     []string  `json:"known,omitempty"`  // what is on a person's desk already; no finding
	Silent    []Silence `json:"silent,omitempty"` // what could not be looked at
	Cut       bool      `json:"cut,omitempty"`    // there were too many findings: the run ended early
}

// OK reports whether everything was looked at and nothing was found.
func (r Report) OK() bool { return len(r.Findings) == 0 && len(r.Silent) == 0 && !r.Cut }

// reconciliation is one run.
type reconciliation struct {
	fleet     *Fleet
	cfg       ReconcileConfig
	report    Report
	consumers map[string][]reader  // by kind
	clocks    map[string]time.Time // of the services' databases, when the run began
	kept      time.Time            // of what is older, some service may have put messages away
	stream    *streamView          // nil if it cannot be read
}

// A reader is a consumer that reads a kind.
type reader struct {
	client   *opsapi.Client
	consumer string
}

// Reconcile compares what the services have recorded about the same things, by
// id and version, and changes nothing. It reads page by page and holds one in
// memory.
func (f *Fleet) Reconcile(ctx context.Context, cfg ReconcileConfig) (Report, error) {
	cfg = cfg.withDefaults()
	now := time.Now()
	r := &reconciliation{fleet: f, cfg: cfg, consumers: map[string][]reader{}, clocks: map[string]time.Time{},
		report: Report{Since: now.Add(-cfg.Window), Until: now, Sample: cfg.Sample, Findings: []Finding{}}}
	if err := r.begin(ctx); err != nil {
		return r.report, err
	}
	for _, c := range f.clients {
		if r.isSilent(c) {
			continue
		}
		for _, part := range []func(context.Context, *opsapi.Client) error{r.facts, r.effects, r.invariants} {
			if err := part(ctx, c); err != nil {
				if ctx.Err() != nil {
					return r.report, ctx.Err()
				}
				r.silent(c, err)
				break
			}
			if r.report.Cut {
				return r.report, nil
			}
		}
	}
	return r.report, nil
}

// begin learns who reads what, and what the stream is like.
func (r *reconciliation) begin(ctx context.Context) error {
	answers := ask(ctx, r.fleet, func(ctx context.Context, c *opsapi.Client) (opsapi.ServiceInfo, error) { return c.Info(ctx) })
	if err := refusal(answers); err != nil {
		return err
	}
	for _, a := range answers {
		if a.err != nil {
			r.silent(a.client, a.err)
			continue
		}
		r.clocks[a.client.Service()] = a.value.Now
		if a.value.KeptSince.After(r.kept) {
			r.kept = a.value.KeptSince
		}
		for _, c := range a.value.Consumers {
			for _, kind := range c.Kinds {
				r.consumers[kind] = append(r.consumers[kind], reader{a.client, c.Name})
			}
		}
	}
	if from := r.kept.Add(ageMargin); from.After(r.report.Since) {
		r.report.Since, r.report.Shortened = from, true
	}
	if r.cfg.Broker == nil {
		r.report.Silent = append(r.report.Silent, Silence{"stream", "no address of the broker was given"})
		return nil
	}
	var err error
	if r.stream, err = newStreamView(ctx, r.cfg.Broker); err != nil {
		r.report.Silent = append(r.report.Silent, Silence{"stream", err.Error()})
	}
	return ctx.Err()
}

func (r *reconciliation) silent(c *opsapi.Client, err error) {
	if !r.isSilent(c) {
		r.report.Silent = append(r.report.Silent, silence(c, err))
	}
}

func (r *reconciliation) isSilent(c *opsapi.Client) bool {
	return slices.ContainsFunc(r.report.Silent, func(s Silence) bool { return s.Service == c.Service() })
}

func (r *reconciliation) found(f Finding) {
	if len(r.report.Findings) >= r.cfg.MaxFindings {
		r.report.Cut = true
		return
	}
	r.report.Findings = append(r.report.Findings, f)
}

// sampled reports whether an order is among those to look at.
func (r *reconciliation) sampled(key string) bool {
	if r.cfg.Sample >= 100 {
		return true
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32()%100) < r.cfg.Sample
}

// now is when the run began, by the clock of a service's database: what it has
// recorded is as old as that says. The machine on which this runs may be an hour
// ahead, and every event that is on its way would be a finding.
func (r *reconciliation) now(service string) time.Time {
	if now := r.clocks[service]; !now.IsZero() {
		return now
	}
	return r.report.Until
}

// settled reports whether what a service has recorded is old enough to be judged.
func (r *reconciliation) settled(service string, at time.Time) bool {
	return r.now(service).Sub(at) > r.cfg.Deadline
}

// window is what to ask a service for. Business tables reach further back than
// messages: what retention has taken off would look as if it had never been.
func (r *reconciliation) window(service string) opsapi.Window {
	now := r.now(service)
	since := now.Add(-r.cfg.Window)
	if from := r.kept.Add(ageMargin); from.After(since) {
		since = from
	}
	return opsapi.Window{Since: since, Until: now, Limit: pageSize}
}

// mayBeAway reports whether an event is so old that its row may have been put
// away.
func (r *reconciliation) mayBeAway(event uuid.UUID) bool {
	return event.Version() == 7 && time.Unix(event.Time().UnixTime()).Before(r.kept)
}

// pageSize is what a service gives at once.
const pageSize = 1000

// facts goes over what a service must have published.
func (r *reconciliation) facts(ctx context.Context, c *opsapi.Client) error {
	w := r.window(c.Service())
	for {
		page, err := c.Facts(ctx, w)
		if err != nil {
			return err
		}
		facts := slices.DeleteFunc(page.Items, func(f opsapi.StagedFact) bool { return !r.sampled(f.Key) })
		if err := r.checkFacts(ctx, c.Service(), facts); err != nil {
			return err
		}
		r.cfg.Progress(r.report)
		if w.After = page.Next; w.After == "" || r.report.Cut {
			return nil
		}
	}
}

// effects goes over what a service made because of others' events.
func (r *reconciliation) effects(ctx context.Context, c *opsapi.Client) error {
	w := r.window(c.Service())
	for {
		page, err := c.Effects(ctx, w)
		if err != nil {
			return err
		}
		effects := slices.DeleteFunc(page.Items, func(e opsapi.Effect) bool { return !r.sampled(e.Key) || e.Corrects != "" })
		if err := r.checkEffects(ctx, c.Service(), effects); err != nil {
			return err
		}
		r.cfg.Progress(r.report)
		if w.After = page.Next; w.After == "" || r.report.Cut {
			return nil
		}
	}
}

func (r *reconciliation) invariants(ctx context.Context, c *opsapi.Client) error {
	list, err := c.Invariants(ctx, r.window(c.Service()).Since)
	if err != nil {
		return err
	}
	for _, inv := range list {
		r.report.Checks++
		if inv.Holds {
			continue
		}
		if inv.Known {
			r.report.Known = append(r.report.Known, fmt.Sprintf("%s: %s (%d)", c.Service(), inv.Says, inv.Count))
			continue
		}
		if inv.Name == opsapi.InvariantNoOrphans {
			r.orphans(c.Service(), inv)
			continue
		}
		r.found(Finding{Check: CheckInvariant, Service: c.Service(),
			Says: fmt.Sprintf("%s: %s (%d, such as %v)", inv.Name, inv.Says, inv.Count, inv.Offenders)})
	}
	return nil
}

// orphans makes a finding of each event that nobody will publish, unless its
// fact has led to it already.
func (r *reconciliation) orphans(service string, inv opsapi.Invariant) {
	known := map[uuid.UUID]bool{}
	for _, f := range r.report.Findings {
		known[f.Event.EventID] = true
	}
	for _, offender := range inv.Offenders {
		id, err := uuid.Parse(offender)
		if err != nil || known[id] {
			continue
		}
		r.found(Finding{Check: CheckOrphan, Service: service, Owner: service, Event: opsapi.EventRef{EventID: id}, Repair: RepairRepublish,
			Says: "staged, and neither queued nor held nor published", Look: "shopctl outbox show " + offender})
	}
}
