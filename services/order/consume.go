package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/strictjson"
)

// followUpsConsumer is the durable that tells this service how far other
// services are with what a payment promises.
const followUpsConsumer = "order-followups"

// The events of other services, with the fields that are used here.

// PointsAwarded: the points service has credited the points of an order.
type PointsAwarded struct {
	OrderID   string    `json:"order_id"`
	AwardedAt time.Time `json:"awarded_at"`
}

// NotificationSent: the mail server has accepted a mail about an order.
type NotificationSent struct {
	OrderID  string    `json:"order_id"`
	Template string    `json:"template"`
	SentAt   time.Time `json:"sent_at"`
}

// NotificationFailed: a mail about an order was given up.
type NotificationFailed struct {
	OrderID  string    `json:"order_id"`
	Template string    `json:"template"`
	Code     string    `json:"code"`
	FailedAt time.Time `json:"failed_at"`
}

func (PointsAwarded) Kind() messaging.Kind {
	return messaging.Kind{Context: "points", Type: "PointsAwarded", Version: 1, Aggregate: "points_entry"}
}

func (NotificationSent) Kind() messaging.Kind {
	return messaging.Kind{Context: "notify", Type: "NotificationSent", Version: 1, Aggregate: "notification"}
}

func (NotificationFailed) Kind() messaging.Kind {
	return messaging.Kind{Context: "notify", Type: "NotificationFailed", Version: 1, Aggregate: "notification"}
}

// templatePaid is the mail that a payment promises. Mails of other templates
// settle nothing here.
const templatePaid = "order_paid"

// register gives the consumer its handlers. They may run in any order and long
// after the event: what is done stays done.
func (s *Service) register(c *messaging.Consumer) {
	c.Wide() // what lies between are its own events
	messaging.HandleBatch(c, s.onPointsAwarded)
	messaging.HandleBatch(c, s.onNotificationSent)
	messaging.HandleBatch(c, s.onNotificationFailed)
}

func (s *Service) onPointsAwarded(ctx context.Context, tx pgx.Tx, evs []messaging.Event[PointsAwarded]) error {
	news := make([]settlement, len(evs))
	for i, ev := range evs {
		news[i] = settlement{orderID: ev.Data.OrderID, since: ev.Data.AwardedAt}
	}
	return settle(ctx, tx, FollowUpPoints, FollowUpDone, news)
}

func (s *Service) onNotificationSent(ctx context.Context, tx pgx.Tx, evs []messaging.Event[NotificationSent]) error {
	var news []settlement
	for _, ev := range evs {
		if ev.Data.Template == templatePaid {
			news = append(news, settlement{orderID: ev.Data.OrderID, since: ev.Data.SentAt})
		} else {
			ev.Result("other_template")
		}
	}
	return settle(ctx, tx, FollowUpNotification, FollowUpDone, news)
}

func (s *Service) onNotificationFailed(ctx context.Context, tx pgx.Tx, evs []messaging.Event[NotificationFailed]) error {
	var news []settlement
	for _, ev := range evs {
		if ev.Data.Template == templatePaid {
			news = append(news, settlement{ev.Data.OrderID, ev.Data.FailedAt, ev.Data.Code})
		} else {
			ev.Result("other_template")
		}
	}
	return settle(ctx, tx, FollowUpNotification, FollowUpFailed, news)
}

// unknownOrderDelay is how long news about an order that is not there waits
// before it is tried again.
const unknownOrderDelay = time.Second

// settle applies news about follow-ups. Each follow-up is written with the
// payment, whose event comes before any news about it, so one that is missing
// means that this database is behind: it was restored, or the news is from
// elsewhere. It must not be lost over that, so it is tried again, and becomes
// a dead letter if the order never appears.
func settle(ctx context.Context, tx pgx.Tx, kind FollowUpKind, state FollowUpState, news []settlement) error {
	if len(news) == 0 {
		return nil
	}
	for _, n := range news {
		if !strictjson.Storable(n.since) { // customers read it: it must be a time that can be written
			return messaging.Permanent(messaging.Coded("bad_data", errors.New("the time is missing or not of this era")))
		}
	}
	missing, err := settleFollowUps(ctx, tx, kind, state, news)
	if err != nil {
		return err
	}
	if missing > 0 {
		err := fmt.Errorf("%d of %d orders have no follow-up %q", missing, len(news), kind)
		return messaging.RetryAfter(messaging.Coded("unknown_order", err), unknownOrderDelay)
	}
	return nil
}
