package shopctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"orderpaid/operator"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/process"
)

// Reconcile compares what the services have recorded about the same things.
type Reconcile struct {
	Services
	NATSURL  process.Secret `name:"nats-url" env:"NATS_URL" placeholder:"URL" help:"The broker, to compare with its stream."`
	Since    time.Duration  `default:"24h" help:"How far back to look. Defaults to 24h."`
	InFlight time.Duration  `default:"1m" help:"How long an event may be on its way without being a finding. Defaults to 1m."`
	Sample   int            `default:"100" help:"The share of orders to look at, in percent; always the same ones. Defaults to 100."`
	Every    time.Duration  `help:"Do it again and again, with this pause; --since should be several times as long."`

	Repair        bool   `help:"Mend what a command can mend, after the report."`
	DryRun        bool   `help:"With --repair: only tell what would be done."`
	AllowExternal bool   `help:"With --repair: also replay to consumers whose effects reach outside the databases, such as mails."`
	PerSecond     int    `default:"200" help:"With --repair: most events in a second. Defaults to 200."`
	Limit         int    `help:"With --repair: mend at most so many findings. Defaults to all."`
	Reason        string `help:"With --repair: why. It is kept with your name."`
}

// Help is printed below the flags.
func (Reconcile) Help() string {
	return `Checks by id and version, across all services and the stream:

  fact without event             a paid order whose event was never staged
  event that nobody publishes    staged, and in no queue                               mended by republishing
  event not published in time    in the queue for longer than --in-flight
  event refused by the broker    a person must release it
  published, not on the stream   the broker has lost it                                mended by republishing
  on the stream, not consumed    no inbox row and no recorded failure                  mended by a replay
  passed over as older           by a consumer whose versions their owner has lost
  consumed, no effect            an inbox row without the entry, mail or document
  effect without cause           an entry, mail or document for no event
  invariant                      ledger and balance differ, mails are stuck, …

It looks back as far as messages are kept, at most. It changes nothing without --repair. The exit code is 1 if there are findings, or if something could not be looked at.

Examples:

  shopctl reconcile --since 2h
  shopctl reconcile --repair --dry-run
  shopctl reconcile --repair --reason "stream deleted at 14:02"`
}

// ErrFindings: not everything is as it must be.
var ErrFindings = errors.New("there are findings")

// check refuses settings under which a run would look at nothing and find
// nothing, or never pause: the first looks like a healthy shop, the second like
// an attack on it.
func (c Reconcile) check() error {
	switch {
	case c.Since <= 0:
		return fmt.Errorf("--since %v: look back for more than nothing", c.Since)
	case c.InFlight <= 0:
		return fmt.Errorf("--in-flight %v: an event is on its way for longer than nothing", c.InFlight)
	case c.Sample < 1 || c.Sample > 100:
		return fmt.Errorf("--sample %d: a share is between 1 and 100 percent", c.Sample)
	case c.Every < 0:
		return fmt.Errorf("--every %v: a pause is not negative", c.Every)
	case c.PerSecond < 1:
		return fmt.Errorf("--per-second %d: at least 1", c.PerSecond)
	case c.Limit < 0:
		return fmt.Errorf("--limit %d: a number of findings is not negative", c.Limit)
	case c.Repair && !c.DryRun && c.Reason == "":
		return errors.New("--repair needs a --reason: it is kept with your name")
	}
	return nil
}

// Run reports, and mends if it is told to.
func (c Reconcile) Run(ctx context.Context, out io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	cfg := operator.ReconcileConfig{Window: c.Since, Deadline: c.InFlight, Sample: c.Sample}
	if c.NATSURL != "" {
		broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(c.NATSURL), Name: "shopctl"})
		if err != nil {
			return noBroker(c.NATSURL, err)
		}
		defer broker.Close()
		cfg.Broker = broker
	}
	for {
		err := c.once(ctx, out, fleet, cfg)
		if c.Every == 0 || err != nil && !errors.Is(err, ErrFindings) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Every):
		}
	}
}

func (c Reconcile) once(ctx context.Context, out io.Writer, fleet *operator.Fleet, cfg operator.ReconcileConfig) error {
	report, err := fleet.Reconcile(ctx, cfg)
	if err != nil {
		return err
	}
	if c.Repair {
		repair := operator.RepairConfig{Reason: "reconcile: " + c.Reason, DryRun: c.DryRun, AllowExternal: c.AllowExternal, PerSecond: c.PerSecond, Limit: c.Limit}
		if err := fleet.Repair(ctx, &report, repair); err != nil {
			return err
		}
	}
	write := report.Write
	if c.JSON {
		write = func(out io.Writer) error { return printJSON(out, report) }
	}
	if err := write(out); err != nil {
		return err
	}
	if report.OK() {
		return nil
	}
	err = fmt.Errorf("%w: %d, and %d parts did not answer", ErrFindings, len(report.Findings), len(report.Silent))
	return errors.Join(err, c.whatNext(ctx, report, cfg.Broker))
}

// whatNext says what to do about those who did not answer, if there are any.
func (c Reconcile) whatNext(ctx context.Context, report operator.Report, broker *natsbroker.Broker) error {
	silent := 0
	for _, s := range report.Silent {
		if _, service := c.Services.Services[s.Service]; service {
			silent++
		}
	}
	var next error
	switch silent {
	case 0:
	case len(c.Services.Services):
		next = errAway(setServices)
	default:
		next = errAbsent(setServices)
	}
	if broker != nil {
		next = errors.Join(next, noBroker(c.NATSURL, broker.Ready(ctx)))
	}
	return next
}
