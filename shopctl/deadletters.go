package shopctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/uuid"

	"orderpaid/operator"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// DeadLettersList shows dead letters.
type DeadLettersList struct {
	Services
	Service   string    `help:"Only those of this service. Defaults to all."`
	State     string    `enum:"open,retrying,parked,unresolved,resolved,discarded,any" default:"open" help:"open (a person must act), retrying, parked, unresolved (all three), resolved, discarded or any. Defaults to open."`
	Consumer  string    `help:"Only those of this consumer."`
	Code      string    `help:"Only those with this error code."`
	Aggregate string    `help:"Only those about this id, such as an order's."`
	Event     uuid.UUID `help:"Only those of this event."`
	Limit     int       `default:"100" help:"Most lines for each service. Defaults to 100."`
}

// Help is printed below the flags.
func (DeadLettersList) Help() string {
	return `A dead letter is an event that a consumer could not apply and no longer tries by itself.

Example: shopctl dead-letters list --service points`
}

// ownedLetter is a dead letter with its service.
type ownedLetter struct {
	Service string `json:"service"`
	messaging.DeadLetter
}

// Run prints a line for each.
func (c DeadLettersList) Run(ctx context.Context, out io.Writer) error {
	if err := atLeastOne("limit", c.Limit); err != nil {
		return err
	}
	clients, err := c.clients(c.Service)
	if err != nil {
		return err
	}
	filter := opsapi.FailureFilter{State: c.State, Size: c.Limit, FailureSelection: opsapi.FailureSelection{
		Consumer: c.Consumer, Code: c.Code, AggregateID: c.Aggregate, EventID: c.Event}}
	if c.State == "any" {
		filter.State = ""
	}
	letters := askEach(clients, func(a *opsapi.Client) (opsapi.Page[messaging.DeadLetter], error) { return a.DeadLetters(ctx, filter) },
		func(service string, d messaging.DeadLetter) ownedLetter { return ownedLetter{service, d} })
	return letters.write(out, c.JSON, "id\tstate\tconsumer\tevent\tabout\tversion\terror\tattempts\tlast\tdue\tdetail", ownedLetter.row)
}

func (d ownedLetter) row() []string {
	due := moment(d.DueAt)
	if d.Overdue {
		due += " OVERDUE"
	}
	return []string{fmt.Sprintf("%s/%d", d.Service, d.FailureID), d.State, d.Consumer, d.EventType, d.AggregateID,
		fmt.Sprint(d.AggregateVersion), d.ErrorCode, fmt.Sprint(d.Attempts), moment(&d.LastFailedAt), due, d.ErrorDetail}
}

// DeadLettersGroups counts dead letters by cause.
type DeadLettersGroups struct {
	Services
	Service string `help:"Only those of this service. Defaults to all."`
}

// Help is printed below the flags.
func (DeadLettersGroups) Help() string {
	return `What share one cause are mended together: shopctl dead-letters retry --service points --code bad_data.

Example: shopctl dead-letters groups`
}

// Run prints a line for each cause, the most frequent first.
func (c DeadLettersGroups) Run(ctx context.Context, out io.Writer) error {
	clients, err := c.clients(c.Service)
	if err != nil {
		return err
	}
	all := map[string][]messaging.FailureGroup{}
	var rows [][]string
	var errs []error
	for _, client := range clients {
		groups, err := client.DeadLetterGroups(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all[client.Service()] = groups
		for _, g := range groups {
			rows = append(rows, []string{client.Service(), g.Consumer, g.State, g.ErrorCode, g.EventType, fmt.Sprint(g.Count), fmt.Sprint(g.Overdue),
				moment(&g.Oldest), moment(&g.Newest)})
		}
	}
	errs = unanswered(errs, len(clients))
	if c.JSON {
		return errors.Join(append(errs, printJSON(out, all))...)
	}
	if len(rows) == 0 && len(errs) > 0 { // as with lists
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, table(out, "service\tconsumer\tstate\terror\tevent\tcount\toverdue\toldest\tnewest", rows))...)
}

// DeadLettersShow shows one with its history.
type DeadLettersShow struct {
	Services
	ID      string `arg:"" help:"The dead letter: points/12."`
	Payload bool   `help:"Print the event itself, and nothing else. That you did is recorded; needs --reason and the role operator."`
	Reason  string `help:"Why you need to see the event."`
}

// Help is printed below the flags.
func (DeadLettersShow) Help() string {
	return `The event is shown without its values: they may be personal.

Examples:

  shopctl dead-letters show points/12
  shopctl dead-letters show points/12 --payload --reason "correct the amount" > event.json`
}

// Run prints it.
func (c DeadLettersShow) Run(ctx context.Context, out io.Writer) error {
	service, id, err := splitRef(c.ID)
	if err != nil {
		return err
	}
	client, err := c.client(service)
	if err != nil {
		return err
	}
	if c.Payload {
		return c.reveal(ctx, out, client, id)
	}
	detail, err := client.DeadLetter(ctx, id)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, detail)
	}
	return writeDetail(out, c.ID, detail)
}

func (c DeadLettersShow) reveal(ctx context.Context, out io.Writer, client *opsapi.Client, id string) error {
	payload, err := client.Reveal(ctx, id, c.Reason)
	if err != nil {
		return err
	}
	if payload.Event == nil {
		_, err := out.Write(payload.Raw)
		return err
	}
	return printJSON(out, payload.Event)
}

func writeDetail(out io.Writer, ref string, d opsapi.FailureDetail) error {
	next := ""
	if d.State == "retrying" {
		next = moment(d.NextAttemptAt)
	}
	rows := [][]string{
		{"state", d.State}, {"consumer", d.Consumer}, {"event", fmt.Sprintf("%s version %d, %s", d.EventType, d.SchemaVersion, text(d.EventID))},
		{"about", fmt.Sprintf("%s %s, version %d", d.AggregateType, d.AggregateID, d.AggregateVersion)},
		{"from", fmt.Sprintf("%s/%d", d.Stream, d.StreamSeq)},
		{"error", fmt.Sprintf("%s (%s): %s", d.ErrorCode, d.ErrorClass, d.ErrorDetail)},
		{"attempts", fmt.Sprint(d.Attempts)}, {"first failed", moment(&d.FirstFailedAt)}, {"last failed", moment(&d.LastFailedAt)},
		{"next attempt", next}, {"due", moment(d.DueAt)}, {"trace", text(d.TraceID)}, {"owner", d.Owner}, {"runbook", d.Runbook},
		{"settled", moment(d.ResolvedAt) + " " + text(d.Resolution)}, {"replaced by", text(d.ReplacedBy)},
		{"payload", fmt.Sprintf("%d bytes %s", d.Bytes, d.PayloadState)},
	}
	if err := table(out, ref+"\t", rows); err != nil {
		return err
	}
	if len(d.Masked) > 0 {
		if err := printJSON(out, d.Masked); err != nil {
			return err
		}
	}
	if d.ErrorStack != "" {
		for line := range strings.Lines(d.ErrorStack) {
			fmt.Fprintln(out, operator.Printable(strings.TrimRight(line, "\n")))
		}
	}
	var actions [][]string
	for _, a := range d.Actions {
		actions = append(actions, []string{moment(&a.At), a.Actor, a.Action, a.Reason})
	}
	return history(out, actions)
}

// LetterSelection chooses dead letters to act on.
type LetterSelection struct {
	IDs       []string `arg:"" optional:"" name:"ids" help:"Dead letters, such as points/12. Without any, all that the flags choose."`
	Service   string   `help:"The service, where the flags choose."`
	Consumer  string   `help:"All open ones of this consumer."`
	Code      string   `help:"All open ones with this error code."`
	Aggregate string   `help:"All open ones about this id, such as an order's."`
}

type changeLetters func(*opsapi.Client, opsapi.FailureSelection) (opsapi.Changed, error)

// each acts on the chosen ones of each service, in steps of at most a thousand.
func (l LetterSelection) each(out io.Writer, s Services, reason, done string, change changeLetters) error {
	groups, err := byService(l.IDs)
	if err != nil {
		return err
	}
	if len(l.IDs) == 0 {
		if l.Service == "" {
			return errors.New("name dead letters such as points/12, or a --service and what to choose there")
		}
		groups = map[string][]string{l.Service: nil}
	}
	all := 0
	for service, ids := range groups {
		client, err := s.client(service)
		if err != nil {
			return err
		}
		selection := opsapi.FailureSelection{IDs: ids, Consumer: l.Consumer, Code: l.Code, AggregateID: l.Aggregate, Reason: reason}
		total := 0
		for more := true; more; {
			changed, err := change(client, selection)
			if err != nil {
				return err
			}
			total += changed.Changed
			more = changed.More && len(ids) == 0
		}
		fmt.Fprintf(out, "%s: %d %s\n", service, total, done)
		all += total
	}
	if all == 0 && len(l.IDs) > 0 {
		return fmt.Errorf("nothing was done: none of them is open; shopctl dead-letters show %s tells more", l.IDs[0])
	}
	return nil
}

// DeadLettersRetry has dead letters tried again.
type DeadLettersRetry struct {
	Services
	Reason
	LetterSelection
}

// Help is printed below the flags.
func (DeadLettersRetry) Help() string {
	return `The consumer tries them once more, with a new budget and their history kept; an aggregate's in order. What has had its
effect meanwhile does not have it twice.

Examples:

  shopctl dead-letters retry points/12 --reason "the rule is mended"
  shopctl dead-letters retry --service points --code bad_data --reason "release 1.4.2 reads the old form"`
}

// Run says how many will be tried.
func (c DeadLettersRetry) Run(ctx context.Context, out io.Writer) error {
	return c.each(out, c.Services, c.Reason.Reason, "will be tried again", func(client *opsapi.Client, s opsapi.FailureSelection) (opsapi.Changed, error) {
		return client.Retry(ctx, s)
	})
}

// DeadLettersDiscard gives dead letters up.
type DeadLettersDiscard struct {
	Services
	Reason
	LetterSelection
}

// Help is printed below the flags.
func (DeadLettersDiscard) Help() string {
	return `They will never be applied, also not by a replay. The rows stay, with your name and your reason.

Example: shopctl dead-letters discard points/12 --reason "a test of the provider, no order"`
}

// Run says how many were given up.
func (c DeadLettersDiscard) Run(ctx context.Context, out io.Writer) error {
	return c.each(out, c.Services, c.Reason.Reason, "discarded", func(client *opsapi.Client, s opsapi.FailureSelection) (opsapi.Changed, error) {
		return client.Discard(ctx, s)
	})
}

// DeadLettersFix sends a corrected event.
type DeadLettersFix struct {
	Services
	Reason
	ID    string `arg:"" help:"The dead letter: points/12."`
	Event string `required:"" placeholder:"FILE" help:"The corrected event, whole, as show --payload prints it; - for standard input."`
}

// Help is printed below the flags.
func (DeadLettersFix) Help() string {
	return `What was said cannot be unsaid: the correction becomes an event of its own, with a new id that names the old one as its
cause. The old one is settled and will have no effect, should it come again.

Example:

  shopctl dead-letters show points/12 --payload --reason "correct it" > event.json
  edit event.json
  shopctl dead-letters fix points/12 --event event.json --reason "the provider sent points as text"`
}

// maxEvent is more than any event has.
const maxEvent = 1 << 20

// Run says which event it became.
func (c DeadLettersFix) Run(ctx context.Context, out io.Writer) error {
	service, id, err := splitRef(c.ID)
	if err != nil {
		return err
	}
	var in io.Reader = os.Stdin
	if c.Event != "-" {
		file, err := os.Open(c.Event)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	event, err := io.ReadAll(io.LimitReader(in, maxEvent))
	if err != nil {
		return fmt.Errorf("read the corrected event: %w", err)
	}
	if !json.Valid(event) {
		return errors.New("the corrected event is not JSON")
	}
	client, err := c.client(service)
	if err != nil {
		return err
	}
	fixed, err := client.Fix(ctx, id, opsapi.Fix{Event: event, Reason: c.Reason.Reason})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is settled; event %s will be applied instead\n", c.ID, fixed.EventID)
	return nil
}
