package search

import (
	"time"

	"orderpaid/platform/messaging"
)

// The events that the index follows: every kind of the order aggregate,
// because each carries one version of it. The structs hold what is used here;
// a test reads the examples in contracts/ with them.

func kind(name string) messaging.Kind {
	return messaging.Kind{Context: "order", Type: name, Version: 1, Aggregate: "order"}
}

// OrderCreated begins a document.
type OrderCreated struct {
	OrderID   string    `json:"order_id"`
	UserID    string    `json:"user_id"`
	Items     []Item    `json:"items"`
	Total     Money     `json:"total"`
	CreatedAt time.Time `json:"created_at"`
}

// OrderPaid: the order's payment was confirmed, in full.
type OrderPaid struct {
	OrderID string    `json:"order_id"`
	PaidAt  time.Time `json:"paid_at"`
}

// OrderRefunded: a part of the payment was given back, or all of it.
type OrderRefunded struct {
	OrderID       string    `json:"order_id"`
	RefundedTotal Money     `json:"refunded_total"` // so far
	RefundedAt    time.Time `json:"refunded_at"`
}

// OrderCancelled: the order was given up before it was paid.
type OrderCancelled struct {
	OrderID     string    `json:"order_id"`
	CancelledAt time.Time `json:"cancelled_at"`
}

func (OrderCreated) Kind() messaging.Kind   { return kind("OrderCreated") }
func (OrderPaid) Kind() messaging.Kind      { return kind("OrderPaid") }
func (OrderRefunded) Kind() messaging.Kind  { return kind("OrderRefunded") }
func (OrderCancelled) Kind() messaging.Kind { return kind("OrderCancelled") }
