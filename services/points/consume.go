package points

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/postgres"
)

// awarder is the name of the durable subscription, and of the inbox.
const awarder = "points-awarder"

// register makes the consumer feed the ledger.
func (s *Service) register(c *messaging.Consumer) {
	c.Wide()                                 // of what is said of orders it wants half, without personal data in the rest
	messaging.HandleBatch(c, s.onOrdersPaid) // the hot path: a few statements for up to 1000 events
	messaging.Handle(c, s.onOrderRefunded)   // the simple form: one event at a time, in the same transaction
}

// onOrdersPaid awards the points of paid orders. tx already holds the inbox
// rows; entries, balances, events and "seen" commit together.
func (s *Service) onOrdersPaid(ctx context.Context, tx pgx.Tx, evs []messaging.Event[OrderPaid]) error {
	entries := make([]Entry, len(evs))
	for i, ev := range evs {
		entry, err := award(ev.Data)
		if err != nil {
			return permanent(err)
		}
		if entries[i], err = identified(entry, ev.Meta); err != nil {
			return err
		}
	}
	booked, err := bookAll(ctx, tx, entries)
	if err != nil {
		return err
	}
	var drafts []messaging.Draft
	for i, ev := range evs {
		at, ok := booked[entries[i].ID]
		if !ok {
			ev.Result(alreadyBooked)
			continue
		}
		entries[i].BookedAt = at
		drafts = append(drafts, entries[i].stated().CausedBy(ev.Meta))
	}
	return s.outbox.Add(ctx, tx, drafts...)
}

// alreadyBooked is what the inbox says of an event whose order, or refund, had
// been announced before under another event id. It changes nothing.
const alreadyBooked = "already_booked"

// awardWait is how long a refund waits before it looks again for the payment
// that it is about. It is no hurry: the order's events travel in order, so this
// only happens when the payment is being delivered again, or was put off; then
// messaging's 20 attempts cover more than three minutes.
const awardWait = 10 * time.Second

// onOrderRefunded takes the points of a refund back, after those of the
// payment were given: a refund alone would leave a debt if its payment never
// came, and a reader in between would see one.
func (s *Service) onOrderRefunded(ctx context.Context, tx pgx.Tx, ev messaging.Event[OrderRefunded]) error {
	entry, err := reverse(ev.Data)
	if err != nil {
		return permanent(err)
	}
	owner, err := awardedTo(ctx, tx, entry.OrderID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		missing := fmt.Errorf("the payment of order %s has not arrived", entry.OrderID)
		return messaging.RetryAfter(messaging.Coded("award_missing", missing), awardWait)
	case err != nil:
		return err
	case owner != entry.UserID:
		return permanent(bad("wrong_user", "order %s was awarded to another user", entry.OrderID))
	}
	if entry, err = identified(entry, ev.Meta); err != nil {
		return err
	}
	booked, err := bookAll(ctx, tx, []Entry{entry})
	if err != nil {
		return err
	}
	at, ok := booked[entry.ID]
	if !ok {
		ev.Result(alreadyBooked)
		return nil
	}
	entry.BookedAt = at
	return s.outbox.Add(ctx, tx, entry.stated().CausedBy(ev.Meta))
}

// entryPrefix begins every entry's id.
const entryPrefix = "pte_"

// identified gives the entry its id and says which event it is for. An event
// about one order in the envelope of another is refused: its order in the
// stream would mean nothing.
func identified(e Entry, m messaging.Meta) (Entry, error) {
	if e.OrderID != m.AggregateID {
		return e, permanent(bad("bad_order_id", "order_id is not the event's aggregate_id"))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return e, fmt.Errorf("make entry id: %w", err)
	}
	e.ID, e.EventID = entryPrefix+hex.EncodeToString(id[:]), m.EventID
	return e, nil
}

// bookAll books entries and turns the one refusal that the database alone can
// make, a balance beyond 64 bits, into its code. In a batch it says only that
// some entry is at fault; messaging then finds out which.
func bookAll(ctx context.Context, tx pgx.Tx, entries []Entry) (map[string]time.Time, error) {
	booked, err := book(ctx, tx, entries)
	if postgres.Code(err) == "22003" { // numeric_value_out_of_range
		return nil, permanent(bad("balance_overflow", "a balance would leave the range of 64 bits"))
	}
	return booked, err
}

// permanent makes a flaw of the event its end: no retry can mend it, so it
// becomes a dead letter under the flaw's code.
func permanent(err error) error {
	var f *flaw
	if errors.As(err, &f) {
		err = messaging.Coded(f.code, err)
	}
	return messaging.Permanent(err)
}
