package demo

import (
	"fmt"
	"math/bits"
	"slices"
)

// An expectation is what the shop owes for one order, by what it answered.
type expectation struct {
	orderID  string
	userID   string
	total    int64
	currency string

	paid      bool
	cancelled bool
	refunds   map[string]int64 // by refund id, minor units
	misfits   map[string]bool  // announcements that were refused because they do not fit the order
}

// expectations are those of a whole journal.
type expectations struct {
	orders    []*expectation
	answers   int // entries
	lost      int // answers that never came; the request was repeated
	repeated  int // accepted answers to something that had been accepted before
	open      int // requests without any definite answer
	surprises []string
}

// expect reads what a journal entitles its client to.
func expect(entries []Entry) *expectations {
	x := &expectations{answers: len(entries)}
	byNumber := map[int]*expectation{}
	accepted, waiting := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		request := e.Op + " " + e.Key
		switch e.Outcome {
		case Unknown:
			x.lost++
			waiting[request] = !accepted[request]
			continue
		case Accepted:
			if accepted[request] {
				x.repeated++
			}
			accepted[request] = true
		}
		delete(waiting, request)
		order := byNumber[e.Order]
		if order == nil {
			order = &expectation{userID: e.UserID, refunds: map[string]int64{}, misfits: map[string]bool{}}
			byNumber[e.Order] = order
			x.orders = append(x.orders, order)
		}
		if surprise := order.note(e); surprise != "" {
			x.surprises = append(x.surprises, fmt.Sprintf("order %d, %s: %s", e.Order, e.Op, surprise))
		}
	}
	for _, yes := range waiting {
		if yes {
			x.open++
		}
	}
	x.orders = slices.DeleteFunc(x.orders, func(o *expectation) bool { return o.orderID == "" })
	return x
}

// note adds a definite answer, and says so if it contradicts an earlier one.
func (o *expectation) note(e Entry) (surprise string) {
	if e.Outcome == Refused {
		return o.noteRefusal(e)
	}
	switch e.Op {
	case OpCreate:
		if o.orderID != "" && (o.orderID != e.OrderID || o.total != e.Amount) {
			return "repeated under one key, it became another order"
		}
		o.orderID, o.total, o.currency = e.OrderID, e.Amount, e.Currency
	case OpCancel:
		o.cancelled = true
	case OpPay:
		if e.Amount != o.total {
			return "a payment over another amount was accepted"
		}
		o.paid = true
	case OpRefund:
		o.refunds[e.RefundID] = e.Amount
	}
	if o.paid && o.cancelled {
		return "both paid and cancelled"
	}
	return ""
}

// noteRefusal judges a no. A payment that does not fit must be kept as an
// exception; a cancel loses against a payment; nothing else may be refused.
func (o *expectation) noteRefusal(e Entry) (surprise string) {
	switch {
	case e.Op == OpPay && (e.Amount != o.total || e.Code == "order_cancelled"):
		o.misfits[e.PaymentID] = true
		return ""
	case e.Op == OpCancel && e.Code == "order_paid":
		return ""
	default:
		return fmt.Sprintf("refused with status %d %s", e.Status, e.Code)
	}
}

// events returns how many events of each kind the order's life has.
func (o *expectation) events() map[string]int {
	kinds := map[string]int{"OrderCreated.v1": 1}
	if o.paid {
		kinds["OrderPaid.v1"] = 1
		if len(o.refunds) > 0 {
			kinds["OrderRefunded.v1"] = len(o.refunds)
		}
	}
	if o.cancelled {
		kinds["OrderCancelled.v1"] = 1
	}
	return kinds
}

// state returns what the shop must say about the order.
func (o *expectation) state() string {
	switch {
	case o.paid:
		return "PAID"
	case o.cancelled:
		return "CANCELLED"
	default:
		return "PENDING_PAYMENT"
	}
}

// version returns how many changes the order has gone through: each is one
// event, and the first makes it version 1.
func (o *expectation) version() (n int64) {
	for _, events := range o.events() {
		n += int64(events)
	}
	return n
}

// refunded returns what all refunds have given back.
func (o *expectation) refunded() (sum int64) {
	for _, amount := range o.refunds {
		sum += amount
	}
	return sum
}

// The rule of points as a customer knows it: one for each whole unit of the
// currency, and one for each whole hundred yen. Every currency of the demo has
// a hundred minor units or is the yen, so it is one division.
const minorUnitsPerPoint = 100

// earned returns the points that the payment brings.
func (o *expectation) earned() int64 {
	if !o.paid {
		return 0
	}
	return o.total / minorUnitsPerPoint
}

// takenBack returns the points that all refunds together take: the share of
// the money that went back, rounded down.
func (o *expectation) takenBack() int64 {
	if !o.paid {
		return 0
	}
	high, low := bits.Mul64(uint64(o.earned()), uint64(o.refunded()))
	points, _ := bits.Div64(high, low, uint64(o.total))
	return int64(points)
}
