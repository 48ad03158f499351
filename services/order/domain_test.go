package order

import (
	"errors"
	"math"
	"testing"
	"time"
)

var testTime = time.Date(2026, 10, 3, 2, 0, 0, 0, time.UTC)

// testOrder costs 499.00 CNY, which earn 499 points.
func testOrder(t *testing.T) Order {
	t.Helper()
	lines := []Line{{SKU: backpack, Quantity: 1, Unit: Money{49900, "CNY"}}}
	o, err := Place("ord_1", "u_1", "CNY", lines, testTime)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func payment(id string, amount int64, currency string) Payment {
	return Payment{ID: id, Amount: Money{amount, currency}, At: testTime}
}

func refundOf(paymentID, id string, amount int64) Refund {
	return Refund{ID: id, PaymentID: paymentID, Amount: Money{amount, "CNY"}, At: testTime}
}

func paidOrder(t *testing.T) Order {
	t.Helper()
	o := testOrder(t)
	if err := o.Pay(payment("pay_1", 49900, "CNY"), DefaultPointsRule(), testTime); err != nil {
		t.Fatal(err)
	}
	return o
}

func cancelledOrder(t *testing.T) Order {
	t.Helper()
	o := testOrder(t)
	if err := o.Cancel("wrong size", testTime); err != nil {
		t.Fatal(err)
	}
	return o
}

// C06: the sum of the lines is the total, to the last unit.
func TestTotalIsTheSumOfTheLines(t *testing.T) {
	t.Parallel()
	usd := func(amount int64) Money { return Money{amount, "USD"} }
	o, err := Place("ord_1", "u_1", "USD", []Line{
		{SKU: "A", Quantity: 3, Unit: usd(1999)},
		{SKU: "B", Quantity: 7, Unit: usd(829)},
		{SKU: "C", Quantity: 10_000, Unit: usd(820)},
	}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := o.Total, usd(5997+5803+8_200_000); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := o.Lines[1].Total, usd(5803); got != want {
		t.Errorf("line 2: got %s, want %s", got, want)
	}
}

func TestOrderThatCannotBeCountedIsRefused(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]Line{
		"one line": {{Quantity: 10_000, Unit: Money{math.MaxInt64 / 9_999, "CNY"}}},
		"the sum":  {{Quantity: 1, Unit: Money{math.MaxInt64, "CNY"}}, {Quantity: 1, Unit: Money{1, "CNY"}}},
	} {
		if _, err := Place("ord_1", "u_1", "CNY", lines, testTime); !errors.Is(err, ErrOverflow) {
			t.Errorf("%s: got %v, want ErrOverflow", name, err)
		}
	}
}

func TestRulesOfAnOrder(t *testing.T) {
	t.Parallel()
	pay := func(id string, amount int64, currency string) func(o *Order) error {
		return func(o *Order) error { return o.Pay(payment(id, amount, currency), DefaultPointsRule(), testTime) }
	}
	refund := func(paymentID, id string, amount int64) func(o *Order) error {
		return func(o *Order) error {
			_, err := o.Refund(refundOf(paymentID, id, amount))
			return err
		}
	}
	refunded := func(t *testing.T) Order {
		o := paidOrder(t)
		if err := refund("pay_1", "re_1", 10_000)(&o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	cancel := func(o *Order) error { return o.Cancel("changed my mind", testTime) }
	failed := func(id string) func(o *Order) error {
		return func(o *Order) error { return o.PaymentFailed(id) }
	}
	const again Reason = "already applied"
	for _, c := range []struct {
		name string
		from func(t *testing.T) Order
		do   func(o *Order) error
		want Reason // empty: accepted
	}{
		{"pay", testOrder, pay("pay_1", 49900, "CNY"), ""},
		{"pay too little", testOrder, pay("pay_1", 49899, "CNY"), ReasonAmount},
		{"pay too much", testOrder, pay("pay_1", 49901, "CNY"), ReasonAmount},
		{"pay a hundred times", testOrder, pay("pay_1", 4990000, "CNY"), ReasonAmount},
		{"pay in another currency", testOrder, pay("pay_1", 49900, "JPY"), ReasonCurrency},
		{"pay again", paidOrder, pay("pay_1", 49900, "CNY"), again},
		{"pay again another amount", paidOrder, pay("pay_1", 50000, "CNY"), ReasonAmount},
		{"pay by a second payment", paidOrder, pay("pay_2", 49900, "CNY"), ReasonSecondPayment},
		{"pay after cancelling", cancelledOrder, pay("pay_1", 49900, "CNY"), ReasonOrderCancelled},
		{"pay again after a refund", refunded, pay("pay_1", 49900, "CNY"), again},

		{"refund all", paidOrder, refund("pay_1", "re_1", 49900), ""},
		{"refund a part", paidOrder, refund("pay_1", "re_1", 1), ""},
		{"refund more than was paid", paidOrder, refund("pay_1", "re_1", 49901), ReasonRefundTooLarge},
		{"refund more than any number", paidOrder, refund("pay_1", "re_1", math.MaxInt64), ReasonRefundTooLarge},
		{"refund the rest", refunded, refund("pay_1", "re_2", 39900), ""},
		{"refund more than the rest", refunded, refund("pay_1", "re_2", 39901), ReasonRefundTooLarge},
		{"refund again", refunded, refund("pay_1", "re_1", 10_000), again},
		{"refund again another amount", refunded, refund("pay_1", "re_1", 9_000), ReasonRefundChanged},
		{"refund another payment", paidOrder, refund("pay_2", "re_1", 1), ReasonRefundElsewhere},
		{"refund before paying", testOrder, refund("pay_1", "re_1", 1), ReasonRefundBeforePayment},
		{"refund after cancelling", cancelledOrder, refund("pay_1", "re_1", 1), ReasonOrderCancelled},

		{"cancel", testOrder, cancel, ""},
		{"cancel again", cancelledOrder, cancel, again},
		{"cancel after paying", paidOrder, cancel, ReasonOrderPaid},
		{"fail the payment that paid", paidOrder, failed("pay_1"), ReasonFailedAfterPaid},
	} {
		o := c.from(t)
		before := o
		got := Reason("")
		err := c.do(&o)
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal):
			got = refusal.Reason
		case errors.Is(err, ErrAlreadyApplied):
			got = again
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if accepted := c.want == ""; accepted && o.Version != before.Version+1 || !accepted && o.Version != before.Version {
			t.Errorf("%s: got version %d after %d", c.name, o.Version, before.Version)
		}
		if c.want != "" && (o.State != before.State || o.Refunded() != before.Refunded()) {
			t.Errorf("%s: was refused and changed the order to %+v", c.name, o)
		}
	}
}

func TestFailedPaymentChangesNothing(t *testing.T) {
	t.Parallel()
	o := testOrder(t)
	if err := o.PaymentFailed("pay_1"); err != nil {
		t.Fatal(err)
	}
	if o.Version != 1 || o.State != StatePendingPayment {
		t.Errorf("got version %d in %s, want 1 in PENDING_PAYMENT", o.Version, o.State)
	}
}

// C35: however the money goes back, the same points go back in all.
func TestPointsOfPartialRefundsAddUpToWhatWasEarned(t *testing.T) {
	t.Parallel()
	o := paidOrder(t)
	var taken int64
	for i, amount := range []int64{33, 33, 34, 16_600, 16_600, 16_600} { // 499 points of 49900: none of these divides evenly
		r, err := o.Refund(refundOf("pay_1", string(rune('a'+i)), amount))
		if err != nil {
			t.Fatal(err)
		}
		taken += r.Points
	}
	if got, want := taken, int64(499); got != want || o.Refunded() != o.Total {
		t.Errorf("got %d points taken back after %s of %s, want %d", got, o.Refunded(), o.Total, want)
	}
}

// C35: the largest amounts neither wrap nor round.
func TestPointsOfTheLargestOrderSurviveRefunds(t *testing.T) {
	t.Parallel()
	o, err := Place("ord_1", "u_1", "JPY", []Line{{Quantity: 1, Unit: Money{math.MaxInt64, "JPY"}}}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Pay(payment("pay_1", math.MaxInt64, "JPY"), PointsRule{"JPY": 1}, testTime); err != nil {
		t.Fatal(err)
	}
	first := Refund{ID: "re_1", PaymentID: "pay_1", Amount: Money{math.MaxInt64 - 1, "JPY"}}
	if first, err = o.Refund(first); err != nil || first.Points != math.MaxInt64-1 {
		t.Errorf("got %d points, %v; want all but one", first.Points, err)
	}
	rest, err := o.Refund(Refund{ID: "re_2", PaymentID: "pay_1", Amount: Money{1, "JPY"}})
	if err != nil || rest.Points != 1 {
		t.Errorf("got %d points, %v; want the last one", rest.Points, err)
	}
}

func TestFollowUpIsLateAfterItsPromisedTimeAndNotBefore(t *testing.T) {
	t.Parallel()
	o := paidOrder(t)
	points := o.FollowUps(Promises{30 * time.Second, time.Minute})[0]
	if got, want := points.At(testTime.Add(30*time.Second)).State, FollowUpPending; got != want {
		t.Errorf("at the promised time: got %s, want %s", got, want)
	}
	late := points.At(testTime.Add(31 * time.Second))
	if got, want := late.State, FollowUpLate; got != want {
		t.Errorf("after the promised time: got %s, want %s", got, want)
	}
	if got, want := late.Since, points.PromisedBy; got != want {
		t.Errorf("late since: got %s, want %s", got, want)
	}
	points.State = FollowUpDone
	if got, want := points.At(testTime.Add(time.Hour)).State, FollowUpDone; got != want {
		t.Errorf("done: got %s, want %s", got, want)
	}
}
