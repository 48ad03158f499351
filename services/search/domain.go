package search

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"orderpaid/platform/strictjson"
)

// State is where an order is in its life, in the order service's words.
type State string

// The states. An order that was paid stays paid; Refunded says how much of
// that was given back.
const (
	StatePendingPayment State = "PENDING_PAYMENT"
	StatePaid           State = "PAID"
	StateCancelled      State = "CANCELLED"
)

// A Document is what the index knows of an order. Its JSON is the API's.
type Document struct {
	OrderID     string     `json:"order_id"`
	UserID      string     `json:"user_id"`
	State       State      `json:"state"`
	Items       []Item     `json:"items"`
	Total       Money      `json:"total"`
	Refunded    Money      `json:"refunded"`
	CreatedAt   time.Time  `json:"created_at"`
	PaidAt      *time.Time `json:"paid_at,omitempty"`
	RefundedAt  *time.Time `json:"refunded_at,omitempty"` // of the last refund
	CancelledAt *time.Time `json:"cancelled_at,omitempty"`
	Version     int64      `json:"version"` // of the order, as of the last event applied
}

// An Item is one line of an order.
type Item struct {
	SKU        string            `json:"sku"`
	Titles     map[string]string `json:"titles"` // by language; whatever languages the order has
	Quantity   int64             `json:"quantity"`
	LineAmount int64             `json:"line_amount"`
}

// Money is an exact amount in minor units: 1990 with exponent 2 is 19.90.
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Exponent int16  `json:"exponent"`
}

// newDocument returns the document of an order that was just placed. Its error
// means that the event is not one that the contract allows.
func newDocument(e OrderCreated, version int64) (Document, error) {
	switch {
	case e.UserID == "" || len(e.UserID) > maxIDBytes:
		return Document{}, fmt.Errorf("user_id must have 1 to %d bytes", maxIDBytes)
	case len(e.Items) == 0:
		return Document{}, errors.New("there are no items")
	case e.Total.Amount < 0 || len(e.Total.Currency) != 3 || e.Total.Exponent < 0:
		return Document{}, errors.New("total is not an amount of a currency")
	case !strictjson.Storable(e.CreatedAt): // it would make every answer that it is in impossible
		return Document{}, errors.New("created_at is missing or not of this era")
	}
	return Document{
		OrderID: e.OrderID, UserID: e.UserID, State: StatePendingPayment, Items: e.Items,
		Total: e.Total, Refunded: Money{0, e.Total.Currency, e.Total.Exponent},
		CreatedAt: e.CreatedAt, Version: version,
	}, nil
}

// maxIDBytes bounds what is indexed by a B-tree, whose rows hold 2704 bytes.
const maxIDBytes = 200

// texts is what a document is found by, the most telling first: should it be
// too much to index, the end is cut.
func (d *Document) texts() []string {
	texts := []string{d.OrderID}
	for _, item := range d.Items {
		for _, language := range slices.Sorted(maps.Keys(item.Titles)) {
			texts = append(texts, item.Titles[language])
		}
	}
	for _, item := range d.Items {
		texts = append(texts, item.SKU)
	}
	return texts
}

// A Change is what a later event does to a document. What is zero stays as it
// is, so that a change is the same however often it is made.
type Change struct {
	OrderID     string
	Version     int64
	State       State
	Refunded    *int64 // all refunds so far, minor units
	PaidAt      time.Time
	RefundedAt  time.Time
	CancelledAt time.Time
}

func (e OrderPaid) change(version int64) (Change, error) {
	if !strictjson.Storable(e.PaidAt) {
		return Change{}, errors.New("paid_at is missing or not of this era")
	}
	return Change{OrderID: e.OrderID, Version: version, State: StatePaid, PaidAt: e.PaidAt}, nil
}

// change takes the sum of all refunds as the event states it. To add up the
// single refunds here would be wrong once one of them comes twice.
func (e OrderRefunded) change(version int64) (Change, error) {
	if !strictjson.Storable(e.RefundedAt) || e.RefundedTotal.Amount < 0 {
		return Change{}, errors.New("refunded_at is missing or not of this era, or refunded_total is below zero")
	}
	return Change{OrderID: e.OrderID, Version: version, Refunded: &e.RefundedTotal.Amount, RefundedAt: e.RefundedAt}, nil
}

func (e OrderCancelled) change(version int64) (Change, error) {
	if !strictjson.Storable(e.CancelledAt) {
		return Change{}, errors.New("cancelled_at is missing or not of this era")
	}
	return Change{OrderID: e.OrderID, Version: version, State: StateCancelled, CancelledAt: e.CancelledAt}, nil
}

// A Query says which orders are asked for. Conditions that are empty do not
// count; an empty query lists all orders.
type Query struct {
	Text   string // words and phrases that must all be there; see queryOf
	UserID string
	State  State
	After  Position // where the page starts; zero is the top
	Limit  int
}

// A Position is a place in the list, which is newest first. It is a place
// between orders and not a count of them: orders that come or go above it move
// nothing below it.
type Position struct {
	CreatedAt time.Time `json:"created_at"`
	OrderID   string    `json:"order_id"`
}

// A Page is a part of the answer to a query.
type Page struct {
	Orders []Document
	Next   Position // zero if nothing follows

	// AsOf is when the newest fact in the index became true; zero if there is
	// none. Later ones are on their way, and so may be a few just before it:
	// facts about different orders do not travel in one line.
	AsOf time.Time
}
