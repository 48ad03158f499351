package shopctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"orderpaid/operator"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// ReplayChoice says which events to bring to which consumer again.
type ReplayChoice struct {
	Consumer string `arg:"" help:"The consumer, such as points-awarder."`
	From     string `required:"" enum:"failures,outbox,stream" help:"Where the events come from: failures (the consumer's own unresolved ones), outbox (their owners' record) or stream (the broker)."`

	Order    string        `help:"From the outbox: all events about this id, such as an order's. From failures: those about it."`
	Events   []uuid.UUID   `name:"event" help:"From the outbox: these events. Repeat it, or separate several with commas."`
	Kind     string        `help:"From outbox and stream: only this kind, such as OrderPaid.v1."`
	Since    time.Duration `help:"From outbox and stream: what was staged or stored since so long ago, such as 2h."`
	Until    time.Duration `help:"From outbox and stream: what was staged or stored until so long ago. Defaults to now."`
	FromSeq  uint64        `name:"from-sequence" help:"From the stream: from this position on."`
	ToSeq    uint64        `name:"to-sequence" help:"From the stream: to this position."`
	Failures []string      `name:"failure" help:"From failures: these ids, without the service."`
	Code     string        `help:"From failures: those with this error code."`

	AllowExternal bool `help:"Also apply what leads to something outside the database, such as a mail. Business keys still keep it from happening twice."`
	PerSecond     int  `default:"100" help:"Most events in a second. Defaults to 100."`
}

// check refuses numbers that would not count, and so choose more than was meant.
func (c ReplayChoice) check() error {
	switch {
	case c.Since < 0:
		return fmt.Errorf("--since %v: so long ago is not negative", c.Since)
	case c.Until < 0:
		return fmt.Errorf("--until %v: so long ago is not negative", c.Until)
	}
	return atLeastOne("per-second", c.PerSecond)
}

func (c ReplayChoice) request(reason string) opsapi.ReplayRequest {
	now := time.Now()
	from := opsapi.Selection{Source: c.From, FailureIDs: c.Failures, Code: c.Code, EventIDs: c.Events, AggregateID: c.Order,
		FromSequence: c.FromSeq, ToSequence: c.ToSeq, Kind: c.Kind}
	if c.Since > 0 {
		from.Since = now.Add(-c.Since)
	}
	if c.Until > 0 {
		from.Until = now.Add(-c.Until)
	}
	return opsapi.ReplayRequest{Consumer: c.Consumer, From: from, AllowExternal: c.AllowExternal, PerSecond: c.PerSecond, Reason: reason}
}

func writePlan(out io.Writer, p opsapi.ReplayPlan) {
	fmt.Fprintf(out, "%d events for %s: %s\n", p.Items, p.Consumer, operator.Outcomes(p.Expected))
	if p.External > 0 {
		fmt.Fprintf(out, "%d of them would lead to something outside the database (needs --allow-external)\n", p.External)
	}
	if p.NeedsApproval {
		fmt.Fprintln(out, "so many need the approval of a second person before they start")
	}
}

// ReplayPlan tells what a replay would do.
type ReplayPlan struct {
	Services
	ReplayChoice
	Sandbox SandboxFlags `embed:"" prefix:"sandbox-"`
	Try     bool         `name:"sandbox" help:"Run it on a copy of the consumer's database, print what came of it, and drop the copy. Needs --sandbox-admin-url."`
}

// Help is printed below the flags.
func (ReplayPlan) Help() string {
	return `apply: would be applied. already_applied: the inbox has it. stale: a later version was applied. external: would lead to
something outside the database, such as a mail. unusable: cannot be read. Nothing is changed.

Examples:

  shopctl replay plan points-awarder --from outbox --kind OrderPaid.v1 --since 2h
  shopctl replay plan search-indexer --from stream --from-sequence 1 --sandbox`
}

// Run prints the plan, or what happened in the sandbox.
func (c ReplayPlan) Run(ctx context.Context, out io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Try {
		return c.Sandbox.run(ctx, out, c.Services, c.request("tried in a sandbox"))
	}
	client, err := c.ownerOf(ctx, c.Consumer)
	if err != nil {
		return err
	}
	plan, err := client.PlanReplay(ctx, c.request(""))
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, plan)
	}
	writePlan(out, plan)
	return nil
}

// ReplayCreate makes a replay.
type ReplayCreate struct {
	Services
	Reason
	ReplayChoice
	DryRun bool `help:"Only tell what it would do, as replay plan does."`
	Start  bool `help:"Start it at once, unless it needs a second person."`
}

// Help is printed below the flags.
func (ReplayCreate) Help() string {
	return `The events keep their ids and go through the same inbox and handlers as always, so what was applied is not applied
again. The replay waits to be started; one that is larger than the consumer allows for one person, to be approved first.

Example: shopctl replay create points-awarder --from outbox --order ord_0197f3a2c4de7b1a9c55d2e8f0a1b2c3 --start --reason "missed in the outage"`
}

// Run prints the plan and the replay's id.
func (c ReplayCreate) Run(ctx context.Context, out io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	client, err := c.ownerOf(ctx, c.Consumer)
	if err != nil {
		return err
	}
	make := client.CreateReplay
	if c.DryRun {
		make = client.PlanReplay
	}
	plan, err := make(ctx, c.request(c.Reason.Reason))
	if err != nil {
		return err
	}
	started := c.Start && !c.DryRun && !plan.NeedsApproval
	if started {
		if _, err := client.MoveReplay(ctx, plan.ReplayID, "start", c.Reason.Reason); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(out, plan)
	}
	writePlan(out, plan)
	if c.DryRun {
		return nil
	}
	_, err = fmt.Fprintln(out, whatNext(client.Service()+"/"+plan.ReplayID.String(), started, plan.NeedsApproval))
	return err
}

// whatNext says how far a new replay is, and the next command as it is typed.
func whatNext(ref string, started, needsApproval bool) string {
	switch {
	case started:
		return "replay " + ref + " has begun: shopctl replay show " + ref
	case needsApproval:
		return "replay " + ref + " waits for a second person, who has a token of his own (the file is the demo's):\n  " +
			EnvFile + "=.orderpaid/approver.env shopctl replay approve " + ref + ` --reason "…"`
	}
	return "replay " + ref + " is ready: " + startHint(ref)
}

// startHint is the command that starts a replay.
func startHint(ref string) string { return "shopctl replay start " + ref + ` --reason "…"` }

// ReplayRef names a replay.
type ReplayRef struct {
	ID string `arg:"" help:"The replay: points/0197f3a2-…"`
}

func (r ReplayRef) open(s Services) (*opsapi.Client, uuid.UUID, error) {
	service, text, err := splitRef(r.ID)
	if err != nil {
		return nil, uuid.Nil, err
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("%q is not the id of a replay", text)
	}
	client, err := s.client(service)
	return client, id, err
}

func moveReplay(ctx context.Context, out io.Writer, s Services, ref ReplayRef, move, reason string) error {
	client, id, err := ref.open(s)
	if err != nil {
		return err
	}
	replay, err := client.MoveReplay(ctx, id, move, reason)
	if err != nil {
		return err
	}
	if s.JSON {
		return printJSON(out, replay)
	}
	return writeReplays(out, []ownedReplay{{client.Service(), replay}})
}

// ReplayStart starts a replay, or has it go on.
type ReplayStart struct {
	Services
	Reason
	ReplayRef
}

// Help is printed below the flags.
func (ReplayStart) Help() string {
	return "A replay that was stopped goes on with the first event that is not done.\n\n" +
		`Example: shopctl replay start points/0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3 --reason "the load is low now"`
}

// Run starts it.
func (c ReplayStart) Run(ctx context.Context, out io.Writer) error {
	return moveReplay(ctx, out, c.Services, c.ReplayRef, "start", c.Reason.Reason)
}

// ReplayStop stops a replay.
type ReplayStop struct {
	Services
	Reason
	ReplayRef
}

// Help is printed below the flags.
func (ReplayStop) Help() string {
	return "Each of its events is done or open; start goes on from there.\n\n" +
		`Example: shopctl replay stop points/0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3 --reason "customers wait"`
}

// Run stops it.
func (c ReplayStop) Run(ctx context.Context, out io.Writer) error {
	return moveReplay(ctx, out, c.Services, c.ReplayRef, "stop", c.Reason.Reason)
}

// ReplayApprove lets somebody else's large replay be started.
type ReplayApprove struct {
	Services
	Reason
	ReplayRef
	Refuse bool `help:"End it instead."`
}

// Help is printed below the flags.
func (ReplayApprove) Help() string {
	return `Whoever asked for it cannot approve it. You need a token of your own with the role approver; the demo has one in
.orderpaid/approver.env.

Example: SHOPCTL_ENV_FILE=.orderpaid/approver.env shopctl replay approve points/0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3 --reason "checked the plan"`
}

// Run approves or refuses it.
func (c ReplayApprove) Run(ctx context.Context, out io.Writer) error {
	move := "approve"
	if c.Refuse {
		move = "refuse"
	}
	if err := moveReplay(ctx, out, c.Services, c.ReplayRef, move, c.Reason.Reason); err != nil || c.Refuse || c.JSON {
		return err
	}
	_, err := fmt.Fprintf(out, "it does not begin by itself: %s\n", startHint(c.ID))
	return err
}

// ReplayShow shows one replay.
type ReplayShow struct {
	Services
	ReplayRef
}

// Help is printed below the flags.
func (ReplayShow) Help() string {
	return "When it is done, its report compares what was expected with what is there.\n\n" +
		"Example: shopctl replay show points/0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3"
}

// Run prints it.
func (c ReplayShow) Run(ctx context.Context, out io.Writer) error {
	client, id, err := c.open(c.Services)
	if err != nil {
		return err
	}
	replay, err := client.Replay(ctx, id)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, replay)
	}
	if err := writeReplays(out, []ownedReplay{{client.Service(), replay}}); err != nil {
		return err
	}
	if len(replay.Report) > 0 && string(replay.Report) != "null" {
		return printJSON(out, replay.Report)
	}
	return nil
}

// ReplayList shows replays.
type ReplayList struct {
	Services
	Service string `help:"Only those of this service. Defaults to all."`
}

// Help is printed below the flags.
func (ReplayList) Help() string { return "The newest come first.\n\nExample: shopctl replay list" }

type ownedReplay struct {
	Service string `json:"service"`
	messaging.Replay
}

// Run prints a line for each.
func (c ReplayList) Run(ctx context.Context, out io.Writer) error {
	clients, err := c.clients(c.Service)
	if err != nil {
		return err
	}
	replays := []ownedReplay{}
	var errs []error
	for _, client := range clients {
		list, err := client.Replays(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, r := range list {
			replays = append(replays, ownedReplay{client.Service(), r})
		}
	}
	errs = unanswered(errs, len(clients))
	if c.JSON {
		return errors.Join(append(errs, printJSON(out, replays))...)
	}
	if len(replays) == 0 && len(errs) > 0 { // as with lists
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, writeReplays(out, replays))...)
}

func writeReplays(out io.Writer, replays []ownedReplay) error {
	var rows [][]string
	for _, r := range replays {
		rows = append(rows, []string{r.Service + "/" + r.ReplayID.String(), r.State, r.Consumer, r.Source, fmt.Sprintf("%d of %d", r.Done, r.Items),
			moment(&r.CreatedAt), r.RequestedBy, text(r.ApprovedBy), r.Reason})
	}
	return table(out, "id\tstate\tconsumer\tfrom\tdone\tmade\tby\tapproved by\tbecause", rows)
}
