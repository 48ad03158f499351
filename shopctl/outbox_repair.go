package shopctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// OutboxShow shows events of an outbox with what became of them.
type OutboxShow struct {
	Services
	Key string `arg:"" help:"The id of an event, or of what it is about, such as an order."`
}

// Help is printed below the flags.
func (OutboxShow) Help() string {
	return `Every service is asked, because an id does not say whose event it is.

Example: shopctl outbox show ord_0197f3a2c4de7b1a9c55d2e8f0a1b2c3`
}

// Run prints a line for each event.
func (c OutboxShow) Run(ctx context.Context, out io.Writer) error {
	clients, err := c.clients("")
	if err != nil {
		return err
	}
	filter := opsapi.OutboxFilter{AggregateID: c.Key}
	if id, err := uuid.Parse(c.Key); err == nil {
		filter = opsapi.OutboxFilter{EventID: id}
	}
	found, err := staged(ctx, clients, filter)
	if len(found) == 0 && err == nil {
		err = errUnknown(c.Key)
	}
	if c.JSON {
		return errors.Join(err, printJSON(out, found))
	}
	if len(found) == 0 {
		return err
	}
	var rows [][]string
	for _, e := range found {
		rows = append(rows, []string{e.Service, e.EventID.String(), e.Kind, e.AggregateID, fmt.Sprint(e.AggregateVersion), e.State, fmt.Sprint(e.Attempts),
			strings.TrimPrefix(text(e.Stream)+"/"+text(e.StreamSeq), "/"), moment(e.PublishedAt), text(e.LastError)})
	}
	return errors.Join(err, table(out, "service\tevent\tkind\tabout\tversion\tstate\tattempts\tstream\tpublished\terror", rows))
}

// ownedEvent is a staged event with its service.
type ownedEvent struct {
	Service string `json:"service"`
	messaging.StagedEvent
}

// staged asks every service and goes on after an error: one that is down must
// not hide the others.
func staged(ctx context.Context, clients []*opsapi.Client, filter opsapi.OutboxFilter) ([]ownedEvent, error) {
	found := askEach(clients, func(a *opsapi.Client) (opsapi.Page[messaging.StagedEvent], error) { return a.Outbox(ctx, filter) },
		func(service string, e messaging.StagedEvent) ownedEvent { return ownedEvent{service, e} })
	return found.entries, errors.Join(found.errs...)
}

// OutboxRepublish publishes events again.
type OutboxRepublish struct {
	Services
	Reason
	Events []string `arg:"" help:"Ids of events that the broker has lost."`
}

// Help is printed below the flags.
func (OutboxRepublish) Help() string {
	return `Puts the events back into the queue under their old ids and places; a relay publishes them. Consumers that had applied
them see duplicates, which change nothing. To find what the broker has lost, and republish all of it: shopctl reconcile.

Example: shopctl outbox republish 0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3 --reason "stream deleted at 14:02"`
}

// Run queues the events and says how many.
func (c OutboxRepublish) Run(ctx context.Context, out io.Writer) error {
	return changeOutbox(ctx, out, c.Services, c.Events, "queued to be published again", "published", func(client *opsapi.Client, ids []uuid.UUID) (opsapi.Changed, error) {
		return client.Republish(ctx, ids, c.Reason.Reason)
	})
}

// OutboxRelease lets refused events be tried again.
type OutboxRelease struct {
	Services
	Reason
	Events []string `arg:"" help:"Ids of events in the state failed."`
}

// Help is printed below the flags.
func (OutboxRelease) Help() string {
	return `The broker refused these events (too large, a subject without a stream), and what stands behind them waits. Mend the
cause first; then release them, and what waits goes with them.

Example: shopctl outbox release 0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3 --reason "the limit of the stream is 1 MiB now"`
}

// Run releases the events and says how many.
func (c OutboxRelease) Run(ctx context.Context, out io.Writer) error {
	return changeOutbox(ctx, out, c.Services, c.Events, "released", "failed", func(client *opsapi.Client, ids []uuid.UUID) (opsapi.Changed, error) {
		return client.Release(ctx, ids, c.Reason.Reason)
	})
}

// changeOutbox finds whose the events are and acts on those there that are in
// one state. It is an error if none of them was: a script, and a person in a
// hurry, would take it for done.
func changeOutbox(ctx context.Context, out io.Writer, s Services, events []string, done, state string,
	change func(*opsapi.Client, []uuid.UUID) (opsapi.Changed, error)) error {
	ids, err := parseEvents(events)
	if err != nil {
		return err
	}
	clients, err := s.clients("")
	if err != nil {
		return err
	}
	var errs []error
	owned, total := 0, 0
	for _, client := range clients {
		found, err := client.OutboxLookup(ctx, opsapi.OutboxLookup{EventIDs: ids})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(found.EventIDs) == 0 {
			continue
		}
		owned += len(found.EventIDs)
		changed, err := change(client, found.EventIDs)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		total += changed.Changed
		fmt.Fprintf(out, "%s: %d of %d %s\n", client.Service(), changed.Changed, len(found.EventIDs), done)
		if changed.Changed == 0 {
			errs = append(errs, tellStates(ctx, out, client, found.EventIDs))
		}
	}
	away := len(errs)
	if errs = unanswered(errs, len(clients)); len(errs) > away {
		return errors.Join(errs...)
	}
	if owned < len(ids) {
		errs = append(errs, fmt.Errorf("%d of the events are in no outbox that answered", len(ids)-owned))
	} else if total == 0 {
		errs = append(errs, fmt.Errorf("nothing was done: none of the events is %s", state))
	}
	return errors.Join(errs...)
}

// tellStates says what a few events are, where they are not what was hoped for.
func tellStates(ctx context.Context, out io.Writer, client *opsapi.Client, ids []uuid.UUID) error {
	const few = 10
	for _, id := range ids[:min(len(ids), few)] {
		page, err := client.Outbox(ctx, opsapi.OutboxFilter{EventID: id})
		if err != nil {
			return err
		}
		for _, e := range page.Items {
			fmt.Fprintf(out, "  %s is %s\n", id, e.State)
		}
	}
	return nil
}
