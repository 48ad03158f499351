package notify

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
)

// sender is the name of the durable subscription, and of the inbox.
const sender = "notify-sender"

// register makes the consumer ask for a mail for each paid order.
func (s *Service) register(c *messaging.Consumer) {
	messaging.Handle(c, s.onOrderPaid)
}

// onOrderPaid writes down that a mail is to be sent. It does not send: a mail
// cannot be rolled back, and a handler's transaction may be repeated.
// delivery.go sends after the commit, from the row.
func (s *Service) onOrderPaid(ctx context.Context, tx pgx.Tx, ev messaging.Event[OrderPaid]) error {
	task, err := plan(ev.Data)
	if err == nil && task.OrderID != ev.AggregateID {
		err = &flaw{"bad_order_id", "order_id is not the event's aggregate_id"}
	}
	if err != nil {
		return permanent(err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make notification id: %w", err)
	}
	task.ID = taskID(id)
	added, err := insertTask(ctx, tx, task, ev.Meta)
	if err != nil {
		return err
	}
	if !added {
		ev.Result("already_planned") // under another event id
		return nil
	}
	afterCommit(tx, s.wake)
	return nil
}

// afterCommit has fn called when tx has committed. The transactions of
// postgres.InTx can do that; with any other the sender finds out by itself, a
// little later.
func afterCommit(tx pgx.Tx, fn func()) {
	if hook, ok := tx.(interface{ AfterCommit(func()) }); ok {
		hook.AfterCommit(fn)
	}
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
