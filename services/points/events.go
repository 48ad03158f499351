package points

import (
	"time"

	"orderpaid/platform/messaging"
)

// What this service reads: of the order's events only the fields that it uses.
// points_delta is a pointer, because a missing number must not become zero
// points without a word.

// OrderPaid: an order earned points.
type OrderPaid struct {
	OrderID     string `json:"order_id"`
	UserID      string `json:"user_id"`
	PointsDelta *int64 `json:"points_delta"`
}

// OrderRefunded: a part of an order was paid back, and its points with it.
type OrderRefunded struct {
	OrderID     string `json:"order_id"`
	UserID      string `json:"user_id"`
	RefundID    string `json:"refund_id"`
	PointsDelta *int64 `json:"points_delta"`
}

func (OrderPaid) Kind() messaging.Kind     { return orderKind("OrderPaid") }
func (OrderRefunded) Kind() messaging.Kind { return orderKind("OrderRefunded") }

func orderKind(name string) messaging.Kind {
	return messaging.Kind{Context: "order", Type: name, Version: 1, Aggregate: "order"}
}

// What this service states. The aggregate is the ledger entry: it never
// changes, so its only version is 1.

// PointsAwarded: the points of an order are part of the user's balance.
type PointsAwarded struct {
	EntryID   string    `json:"entry_id"`
	OrderID   string    `json:"order_id"`
	UserID    string    `json:"user_id"`
	Points    int64     `json:"points"`
	AwardedAt time.Time `json:"awarded_at"`
}

// PointsReversed: the points of a refund are no longer part of it.
type PointsReversed struct {
	EntryID    string    `json:"entry_id"`
	OrderID    string    `json:"order_id"`
	UserID     string    `json:"user_id"`
	RefundID   string    `json:"refund_id"`
	Points     int64     `json:"points"` // never above zero
	ReversedAt time.Time `json:"reversed_at"`
}

func (PointsAwarded) Kind() messaging.Kind  { return entryKind("PointsAwarded") }
func (PointsReversed) Kind() messaging.Kind { return entryKind("PointsReversed") }

func entryKind(name string) messaging.Kind {
	return messaging.Kind{Context: "points", Type: name, Version: 1, Aggregate: "points_entry"}
}

// stated drafts the event about an entry that was booked.
func (e Entry) stated() messaging.Draft {
	if e.Kind == Reversal {
		return messaging.New(e.ID, 1, PointsReversed{e.ID, e.OrderID, e.UserID, e.RefundID, e.Points, e.BookedAt})
	}
	return messaging.New(e.ID, 1, PointsAwarded{e.ID, e.OrderID, e.UserID, e.Points, e.BookedAt})
}
