package order

import (
	"time"

	"orderpaid/platform/messaging"
)

// The events that this service states. Their data is the contract in
// contracts/; a test compares each struct with the example there.

func kind(name string) messaging.Kind {
	return messaging.Kind{Context: "order", Type: name, Version: 1, Aggregate: "order"}
}

// OrderCreated: a customer placed an order, which now waits for its payment.
type OrderCreated struct {
	OrderID   string      `json:"order_id"`
	UserID    string      `json:"user_id"`
	Items     []eventItem `json:"items"`
	Total     eventMoney  `json:"total"`
	CreatedAt time.Time   `json:"created_at"`
}

// OrderPaid: the provider confirmed the payment, in full.
type OrderPaid struct {
	OrderID     string     `json:"order_id"`
	UserID      string     `json:"user_id"`
	PaymentID   string     `json:"payment_id"`
	Total       eventMoney `json:"total"`
	PointsDelta int64      `json:"points_delta"`
	PaidAt      time.Time  `json:"paid_at"`
}

// OrderRefunded: the provider paid back a part of the payment, or all of it.
type OrderRefunded struct {
	OrderID       string     `json:"order_id"`
	UserID        string     `json:"user_id"`
	RefundID      string     `json:"refund_id"`
	PaymentID     string     `json:"payment_id"`
	Refund        eventMoney `json:"refund"`
	RefundedTotal eventMoney `json:"refunded_total"`
	Full          bool       `json:"full"`
	PointsDelta   int64      `json:"points_delta"` // what to take back, so never above zero
	RefundedAt    time.Time  `json:"refunded_at"`
}

// OrderCancelled: the order was given up before it was paid.
type OrderCancelled struct {
	OrderID     string    `json:"order_id"`
	UserID      string    `json:"user_id"`
	Reason      string    `json:"reason"`
	CancelledAt time.Time `json:"cancelled_at"`
}

func (OrderCreated) Kind() messaging.Kind   { return kind("OrderCreated") }
func (OrderPaid) Kind() messaging.Kind      { return kind("OrderPaid") }
func (OrderRefunded) Kind() messaging.Kind  { return kind("OrderRefunded") }
func (OrderCancelled) Kind() messaging.Kind { return kind("OrderCancelled") }

type eventItem struct {
	SKU        string `json:"sku"`
	Titles     Titles `json:"titles"`
	Quantity   int64  `json:"quantity"`
	UnitAmount int64  `json:"unit_amount"`
	LineAmount int64  `json:"line_amount"`
}

// eventMoney carries the exponent, so that a consumer needs no currency table.
type eventMoney struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Exponent int    `json:"exponent"`
}

func newEventMoney(m Money) eventMoney {
	places, _ := Exponent(m.Currency)
	return eventMoney{m.Amount, m.Currency, places}
}

// The drafts below are made right after the change that they state, while the
// order's row is locked: the order's version is the event's.

func (o *Order) created() messaging.Draft {
	items := make([]eventItem, len(o.Lines))
	for i, l := range o.Lines {
		items[i] = eventItem{l.SKU, l.Titles, l.Quantity, l.Unit.Amount, l.Total.Amount}
	}
	return messaging.New(o.ID, o.Version, OrderCreated{OrderID: o.ID, UserID: o.UserID, Items: items,
		Total: newEventMoney(o.Total), CreatedAt: o.CreatedAt}).OccurredAt(o.CreatedAt)
}

func (o *Order) paid() messaging.Draft {
	return messaging.New(o.ID, o.Version, OrderPaid{OrderID: o.ID, UserID: o.UserID, PaymentID: o.Payment.ID,
		Total: newEventMoney(o.Total), PointsDelta: o.Points, PaidAt: o.PaidAt}).OccurredAt(o.PaidAt)
}

func (o *Order) refunded(r Refund, at time.Time) messaging.Draft {
	return messaging.New(o.ID, o.Version, OrderRefunded{OrderID: o.ID, UserID: o.UserID, RefundID: r.ID, PaymentID: r.PaymentID,
		Refund: newEventMoney(r.Amount), RefundedTotal: newEventMoney(o.Refunded()), Full: o.Refunded() == o.Total,
		PointsDelta: -r.Points, RefundedAt: at}).OccurredAt(at)
}

func (o *Order) cancelled() messaging.Draft {
	return messaging.New(o.ID, o.Version, OrderCancelled{OrderID: o.ID, UserID: o.UserID, Reason: o.CancelReason,
		CancelledAt: o.CancelledAt}).OccurredAt(o.CancelledAt)
}
