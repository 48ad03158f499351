package console

import (
	"context"
	"regexp"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
)

// auditor is the name of the durable subscription, and of the inbox.
const auditor = "console-auditor"

// register makes the consumer feed the trail with every kind there is. A new
// kind of any service needs a line here; until then it is passed by.
func (s *Service) register(c *messaging.Consumer) {
	c.Wide() // it reads everything
	messaging.HandleBatch(c, heard[OrderCreated](s))
	messaging.HandleBatch(c, heard[OrderPaid](s))
	messaging.HandleBatch(c, heard[OrderRefunded](s))
	messaging.HandleBatch(c, heard[OrderCancelled](s))
	messaging.HandleBatch(c, heard[PointsAwarded](s))
	messaging.HandleBatch(c, heard[PointsReversed](s))
	messaging.HandleBatch(c, heard[NotificationSent](s))
	messaging.HandleBatch(c, heard[NotificationFailed](s))
}

// orderIDPattern is what an order id looks like. Anything else is kept in the
// trail without an order, because it cannot be one.
var orderIDPattern = regexp.MustCompile(`^ord_[0-9a-f]{32}$`)

// heard returns the handler of one kind. tx already holds the inbox rows; the
// trail, the progress of the orders and the counts commit with them, so no
// event is counted twice however often it comes.
func heard[T interface {
	messaging.Payload
	order() string
}](s *Service) func(context.Context, pgx.Tx, []messaging.Event[T]) error {
	return func(ctx context.Context, tx pgx.Tx, evs []messaging.Event[T]) error {
		var zero T
		facts := make([]Fact, len(evs))
		for i, ev := range evs {
			facts[i] = Fact{Meta: ev.Meta, Kind: zero.Kind().String()}
			if id := ev.Data.order(); orderIDPattern.MatchString(id) {
				facts[i].OrderID = id
			}
		}
		return record(ctx, tx, facts)
	}
}
