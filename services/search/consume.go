package search

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
)

// indexer is the durable subscription that feeds the live slot.
const indexer = "search-indexer"

// register makes the consumer feed the service's index. All handlers take
// whole groups: one statement indexes a thousand orders.
//
// With EveryVersion, messaging hands over each order's events one version
// after the other, so that no handler here asks what came before. What the
// statements in store.go check again is the version of the document they
// change: should anything else ever write one, the newer wins.
func (s *Service) register(c *messaging.Consumer) {
	c.EveryVersion()
	c.Wide() // it reads all that is said of orders
	messaging.HandleBatch(c, s.onOrdersCreated)
	messaging.HandleBatch(c, s.onOrdersPaid)
	messaging.HandleBatch(c, s.onOrdersRefunded)
	messaging.HandleBatch(c, s.onOrdersCancelled)
}

func (s *Service) onOrdersCreated(ctx context.Context, tx pgx.Tx, evs []messaging.Event[OrderCreated]) error {
	docs := make([]Document, len(evs))
	for i, ev := range evs {
		doc, err := newDocument(ev.Data, ev.AggregateVersion)
		if err == nil {
			err = sameOrder(ev.Meta, doc.OrderID)
		}
		if err != nil {
			return messaging.Permanent(messaging.Coded("bad_data", err))
		}
		docs[i] = doc
	}
	slot, err := takeIn(ctx, tx, s.slot, evs)
	if err != nil {
		return err
	}
	return putDocuments(ctx, tx, slot, docs)
}

func (s *Service) onOrdersPaid(ctx context.Context, tx pgx.Tx, evs []messaging.Event[OrderPaid]) error {
	return applyChanges(ctx, tx, s.slot, evs)
}

func (s *Service) onOrdersRefunded(ctx context.Context, tx pgx.Tx, evs []messaging.Event[OrderRefunded]) error {
	return applyChanges(ctx, tx, s.slot, evs)
}

func (s *Service) onOrdersCancelled(ctx context.Context, tx pgx.Tx, evs []messaging.Event[OrderCancelled]) error {
	return applyChanges(ctx, tx, s.slot, evs)
}

// changing is an event that changes a document.
type changing interface {
	messaging.Payload
	change(version int64) (Change, error)
}

func applyChanges[T changing](ctx context.Context, tx pgx.Tx, slot slotFunc, evs []messaging.Event[T]) error {
	changes := make([]Change, len(evs))
	for i, ev := range evs {
		change, err := ev.Data.change(ev.AggregateVersion)
		if err == nil {
			err = sameOrder(ev.Meta, change.OrderID)
		}
		if err != nil {
			return messaging.Permanent(messaging.Coded("bad_data", err))
		}
		changes[i] = change
	}
	n, err := takeIn(ctx, tx, slot, evs)
	if err != nil {
		return err
	}
	behind, err := changeDocuments(ctx, tx, n, changes)
	if err != nil {
		return err
	}
	for _, ev := range evs {
		if behind[ev.AggregateID] {
			ev.Result("stale")
		}
	}
	return nil
}

// takeIn returns the slot to write to, and notes how far the index comes with
// these events.
func takeIn[T messaging.Payload](ctx context.Context, tx pgx.Tx, slot slotFunc, evs []messaging.Event[T]) (int16, error) {
	newest := evs[0].OccurredAt
	for _, ev := range evs[1:] {
		if ev.OccurredAt.After(newest) {
			newest = ev.OccurredAt
		}
	}
	return slot(ctx, tx, newest)
}

// sameOrder refuses an event whose envelope and data are about two orders: it
// would be counted as a version of the one and change the other.
func sameOrder(m messaging.Meta, orderID string) error {
	if orderID != m.AggregateID {
		return errors.New("order_id is not the event's aggregate_id")
	}
	return nil
}
