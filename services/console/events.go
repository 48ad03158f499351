package console

import "orderpaid/platform/messaging"

// What this service reads: every kind of every service, and of its data only
// the order that it is about. Names, addresses and amounts stay where they are.

// about is what every event's data has in common.
type about struct {
	OrderID string `json:"order_id"`
}

func (a about) order() string { return a.OrderID }

// The kinds, one type each: the type is what a handler is registered for.
type (
	OrderCreated       struct{ about }
	OrderPaid          struct{ about }
	OrderRefunded      struct{ about }
	OrderCancelled     struct{ about }
	PointsAwarded      struct{ about }
	PointsReversed     struct{ about }
	NotificationSent   struct{ about }
	NotificationFailed struct{ about }
)

func (OrderCreated) Kind() messaging.Kind   { return kind("order", "OrderCreated", "order") }
func (OrderPaid) Kind() messaging.Kind      { return kind("order", "OrderPaid", "order") }
func (OrderRefunded) Kind() messaging.Kind  { return kind("order", "OrderRefunded", "order") }
func (OrderCancelled) Kind() messaging.Kind { return kind("order", "OrderCancelled", "order") }
func (PointsAwarded) Kind() messaging.Kind  { return kind("points", "PointsAwarded", "points_entry") }
func (PointsReversed) Kind() messaging.Kind { return kind("points", "PointsReversed", "points_entry") }
func (NotificationSent) Kind() messaging.Kind {
	return kind("notify", "NotificationSent", "notification")
}
func (NotificationFailed) Kind() messaging.Kind {
	return kind("notify", "NotificationFailed", "notification")
}

func kind(context, name, aggregate string) messaging.Kind {
	return messaging.Kind{Context: context, Type: name, Version: 1, Aggregate: aggregate}
}
