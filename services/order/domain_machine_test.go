package order

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Whatever comes in whatever order, an order keeps its books.
func TestAnySequenceOfCallbacksKeepsTheBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 1<<50).Draw(t, "total")
		rule := PointsRule{"CNY": rapid.Int64Range(1, 1000).Draw(t, "per point")}
		o, err := Place("ord_1", "u_1", "CNY", []Line{{Quantity: 1, Unit: Money{total, "CNY"}}}, testTime)
		if err != nil {
			t.Fatal(err)
		}
		b := &books{order: o, rule: rule, events: 1}
		t.Repeat(map[string]func(*rapid.T){
			"pay":    b.pay,
			"refund": b.refund,
			"cancel": b.cancel,
			"":       b.check,
		})
	})
}

// books is what an outsider would note down about an order.
type books struct {
	order    Order
	rule     PointsRule
	events   int64 // one for each accepted change
	awarded  int64 // by OrderPaid
	reversed int64 // by all OrderRefunded
	refunded int64
	payments int
	cancels  int
}

func (b *books) pay(t *rapid.T) {
	amount := b.order.Total.Amount
	if rapid.IntRange(0, 9).Draw(t, "wrong amount") == 0 {
		amount++
	}
	id := fmt.Sprintf("pay_%d", rapid.IntRange(1, 2).Draw(t, "payment"))
	if b.accepted(t, b.order.Pay(payment(id, amount, "CNY"), b.rule, testTime)) {
		b.payments++
		b.awarded = b.order.Points
	}
}

func (b *books) refund(t *rapid.T) {
	r := refundOf(fmt.Sprintf("pay_%d", rapid.IntRange(1, 2).Draw(t, "payment")),
		fmt.Sprintf("re_%d", rapid.IntRange(1, 6).Draw(t, "refund")),
		rapid.Int64Range(1, b.order.Total.Amount).Draw(t, "amount"))
	if left := b.order.Total.Amount - b.refunded; left > 0 && rapid.Bool().Draw(t, "the rest") {
		r.Amount.Amount = left
	}
	r, err := b.order.Refund(r)
	if b.accepted(t, err) {
		b.refunded += r.Amount.Amount
		b.reversed += r.Points
	}
}

func (b *books) cancel(t *rapid.T) {
	if b.accepted(t, b.order.Cancel("changed my mind", testTime)) {
		b.cancels++
	}
}

func (b *books) accepted(t *rapid.T, err error) bool {
	var refusal *Refusal
	if err != nil && !errors.As(err, &refusal) && !errors.Is(err, ErrAlreadyApplied) {
		t.Fatal(err)
	}
	if err == nil {
		b.events++
	}
	return err == nil
}

func (b *books) check(t *rapid.T) {
	o := b.order
	switch {
	case o.Version != b.events:
		t.Fatalf("got version %d after %d events", o.Version, b.events)
	case b.payments+b.cancels > 1:
		t.Fatalf("paid %d times and cancelled %d times", b.payments, b.cancels)
	case b.payments == 1 && o.Payment.Amount != o.Total:
		t.Fatalf("got %s paid of %s", o.Payment.Amount, o.Total)
	case o.Refunded().Amount != b.refunded || b.refunded > o.Total.Amount*int64(b.payments):
		t.Fatalf("got %s refunded, noted %d, of %s", o.Refunded(), b.refunded, o.Total)
	case o.PointsTakenBack() != b.reversed || b.reversed < 0 || b.reversed > b.awarded:
		t.Fatalf("got %d points taken back, noted %d, of %d", o.PointsTakenBack(), b.reversed, b.awarded)
	case b.refunded == o.Total.Amount && b.reversed != b.awarded:
		t.Fatalf("all was refunded, and %d of %d points taken back", b.reversed, b.awarded)
	}
}
