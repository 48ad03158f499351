package order

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"orderpaid/platform/messaging/messagingtest"
)

func applied() Outcome            { return Outcome{Result: ResultApplied} }
func alreadyApplied() Outcome     { return Outcome{Result: ResultAlreadyApplied} }
func kept(reason Reason) Outcome  { return Outcome{ResultKept, reason} }
func held() Outcome               { return Outcome{ResultHeld, ReasonRefundBeforePayment} }
func status(r reply, of int) bool { return r.status == of }

func TestPaidOrderSaysWhatIsStillOnItsWay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	if r := s.pay(t, o, "pay_1"); r.result() != applied() || !status(r, 200) {
		t.Fatalf("got %s, want 200 applied", r)
	}
	got := s.get(t, o.OrderID)
	if got.State != StatePaid || got.Version != 2 || got.Says != "Paid, 499.00 CNY." || got.Points != 499 {
		t.Errorf("got %+v", got)
	}
	if len(got.Payments) != 1 || got.Payments[0].PaymentID != "pay_1" || got.Payments[0].Amount.Amount != 49900 {
		t.Errorf("got payments %+v, want pay_1 of 499.00", got.Payments)
	}
	var kinds []FollowUpKind
	for _, f := range got.FollowUps {
		kinds = append(kinds, f.Kind)
		if f.State != FollowUpPending || !f.Since.Equal(got.PaidAt) || !f.PromisedBy.After(f.Since) || f.Says == "" {
			t.Errorf("got follow-up %+v, want it pending since %s", f, got.PaidAt)
		}
	}
	if want := []FollowUpKind{FollowUpPoints, FollowUpNotification}; !cmp.Equal(kinds, want) {
		t.Errorf("got follow-ups %v, want %v", kinds, want)
	}
	ev := messagingtest.RequireStaged[OrderPaid](t, s.pool)
	want := OrderPaid{OrderID: o.OrderID, UserID: "u_1", PaymentID: "pay_1", Total: eventMoney{49900, "CNY", 2}, PointsDelta: 499, PaidAt: got.PaidAt}
	if diff := cmp.Diff(ev.Data, want); diff != "" || ev.AggregateVersion != 2 {
		t.Errorf("event in version %d: got-, want+\n%s", ev.AggregateVersion, diff)
	}
}

// C16: one payment, announced twenty times at once under twenty ids.
func TestTwentyCallbacksForOnePaymentAreOnePayment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	replies := make([]reply, 20)
	atOnce(len(replies), func(i int) { replies[i] = s.pay(t, o, "pay_1") })
	first := 0
	for _, r := range replies {
		switch {
		case !status(r, 200):
			t.Errorf("got %s, want 200", r)
		case r.result() == applied():
			first++
		case r.result() != alreadyApplied():
			t.Errorf("got %s, want already_applied", r)
		}
	}
	if first != 1 {
		t.Errorf("got %d callbacks applied, want 1", first)
	}
	messagingtest.RequireStaged[OrderPaid](t, s.pool)
	for table, want := range map[string]int{"payment": 1, "follow_up": 2, "payment_callback": 20, "payment_exception": 0, "message_outbox": 2} {
		if got := s.count(t, table); got != want {
			t.Errorf("%s: got %d rows, want %d", table, got, want)
		}
	}
	if got := s.get(t, o.OrderID).Version; got != 2 {
		t.Errorf("got version %d, want 2", got)
	}
}

func TestRepeatedCallbackGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	good := announcement{id: "msg_1", kind: PaymentSucceeded, orderID: o.OrderID, paymentID: "pay_1", amount: 49900, currency: "CNY"}
	bad := announcement{id: "msg_2", kind: PaymentSucceeded, orderID: o.OrderID, paymentID: "pay_2", amount: 1, currency: "CNY"}
	for range 3 {
		if r := s.announce(t, good); r.result() != applied() {
			t.Errorf("got %s, want applied", r)
		}
		if r := s.announce(t, bad); r.result() != kept(ReasonAmount) || !status(r, 202) {
			t.Errorf("got %s, want 202 kept amount_mismatch", r)
		}
	}
	if got := s.exceptions(t); len(got) != 1 || got[0].Occurrences != 1 {
		t.Errorf("got exceptions %+v, want one that was seen once", got)
	}
}

// C17: the provider's callback and the customer's cancellation at the same
// moment have one winner.
func TestOrderIsNeverPaidAndCancelled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for round := range 15 {
		o := s.placed(t)
		payments, cancels := make([]reply, 3), make([]reply, 3)
		atOnce(6, func(i int) {
			if i%2 == 0 {
				payments[i/2] = s.pay(t, o, fmt.Sprintf("pay_%d", round))
			} else {
				cancels[i/2] = s.cancel(t, o.OrderID)
			}
		})
		got := s.get(t, o.OrderID)
		if got.Version != 2 || len(got.History) != 2 {
			t.Errorf("got version %d and history %+v, want one change", got.Version, got.History)
		}
		for i := range payments {
			switch got.State {
			case StatePaid:
				if !status(payments[i], 200) || cancels[i].code() != "order_paid" {
					t.Errorf("paid: got payment %s and cancellation %s", payments[i], cancels[i])
				}
			case StateCancelled:
				if payments[i].result() != kept(ReasonOrderCancelled) || !status(cancels[i], 200) {
					t.Errorf("cancelled: got payment %s and cancellation %s", payments[i], cancels[i])
				}
			default:
				t.Errorf("got %s, want a winner", got.State)
			}
		}
	}
	if got, want := s.count(t, "message_outbox"), 2*15; got != want {
		t.Errorf("got %d events, want %d", got, want)
	}
}

// C86: among others, a payment of an order that was cancelled meanwhile.
func TestCallbackThatCannotBeAppliedIsKeptAndShown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	open, paid, cancelled, other := s.placed(t), s.placed(t), s.placed(t), s.placed(t)
	s.pay(t, paid, "pay_paid")
	s.pay(t, other, "pay_other")
	s.cancel(t, cancelled.OrderID)
	succeeded := func(orderID, paymentID string, amount int64, currency string) announcement {
		return announcement{kind: PaymentSucceeded, orderID: orderID, paymentID: paymentID, amount: amount, currency: currency}
	}
	refunded := func(orderID, paymentID string, amount int64) announcement {
		return announcement{kind: PaymentRefunded, orderID: orderID, paymentID: paymentID, refundID: "re_1", amount: amount, currency: "CNY"}
	}
	events := s.count(t, "message_outbox")
	for _, c := range []struct {
		a    announcement
		want Reason
	}{
		{succeeded(open.OrderID, "pay_1", 49800, "CNY"), ReasonAmount},
		{succeeded(open.OrderID, "pay_1", 49900, "USD"), ReasonCurrency},
		{succeeded(open.OrderID, "pay_1", 49900, "XXX"), ReasonCurrency},
		{succeeded(cancelled.OrderID, "pay_1", 49900, "CNY"), ReasonOrderCancelled},
		{succeeded("ord_00000000000000000000000000000000", "pay_1", 49900, "CNY"), ReasonUnknownOrder},
		{succeeded("order 66", "pay_1", 49900, "CNY"), ReasonUnknownOrder},
		{succeeded(paid.OrderID, "pay_1", 49900, "CNY"), ReasonSecondPayment},
		{succeeded(open.OrderID, "pay_other", 49900, "CNY"), ReasonPaymentElsewhere},
		{refunded(paid.OrderID, "pay_paid", 49901), ReasonRefundTooLarge},
		{refunded(paid.OrderID, "pay_other", 1), ReasonRefundElsewhere},
		{refunded(cancelled.OrderID, "pay_1", 49900), ReasonOrderCancelled},
		{announcement{kind: PaymentFailed, orderID: paid.OrderID, paymentID: "pay_paid", amount: 49900, currency: "CNY"}, ReasonFailedAfterPaid},
		{announcement{kind: "payment.disputed", orderID: paid.OrderID, paymentID: "pay_paid", amount: 49900, currency: "CNY"}, ReasonUnknownType},
	} {
		r := s.announce(t, c.a)
		if !status(r, 202) || r.result() != kept(c.want) {
			t.Errorf("%s: got %s, want 202", c.want, r)
			continue
		}
		all := s.exceptions(t)
		last := all[len(all)-1]
		if last.Reason != c.want || last.OrderID != c.a.orderID || last.PaymentID != c.a.paymentID ||
			last.Amount.Amount != c.a.amount || last.State != ExceptionOpen || last.Says == "" {
			t.Errorf("%s: got %+v", c.want, last)
		}
	}
	if got := s.count(t, "message_outbox"); got != events {
		t.Errorf("got %d events of callbacks that were not applied, want none", got-events)
	}
	got := s.get(t, open.OrderID)
	if got.State != StatePendingPayment || got.Version != 1 {
		t.Errorf("got %s in version %d, want it untouched", got.State, got.Version)
	}
	if len(got.Exceptions) != 4 || got.Exceptions[0].Says != "the order's total is 499.00 CNY and the payment's 498.00 CNY" {
		t.Errorf("got exceptions %+v, want the four of this order", got.Exceptions)
	}
	if r := s.pay(t, open, "pay_1"); r.result() != applied() {
		t.Errorf("the right payment after all: got %s, want applied", r)
	}
}

func TestOneClaimUnderManyIDsIsOneException(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.cancel(t, o.OrderID)
	atOnce(20, func(int) {
		if r := s.pay(t, o, "pay_1"); r.result() != kept(ReasonOrderCancelled) {
			t.Errorf("got %s, want it kept", r)
		}
	})
	if got := s.exceptions(t); len(got) != 1 || got[0].Occurrences != 20 {
		t.Errorf("got %+v, want one exception that was seen 20 times", got)
	}
}

func TestOnePaymentNamedForTwoOrdersPaysOne(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	orders := []orderView{s.placed(t), s.placed(t)}
	replies := make([]reply, len(orders))
	atOnce(len(orders), func(i int) { replies[i] = s.pay(t, orders[i], "pay_1") })
	if a, b := replies[0].result(), replies[1].result(); !(a == applied() && b == kept(ReasonPaymentElsewhere) ||
		b == applied() && a == kept(ReasonPaymentElsewhere)) {
		t.Errorf("got %s and %s, want one applied and one kept", replies[0], replies[1])
	}
	messagingtest.RequireStaged[OrderPaid](t, s.pool)
}

func TestCallbackIDThatIsUsedAgainIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a, b := s.placed(t), s.placed(t)
	first := announcement{id: "msg_1", kind: PaymentSucceeded, orderID: a.OrderID, paymentID: "pay_1", amount: 49900, currency: "CNY"}
	second := first
	second.orderID, second.paymentID = b.OrderID, "pay_2"
	s.announce(t, first)
	if r := s.announce(t, second); r.result() != kept(ReasonCallbackReused) {
		t.Errorf("got %s, want it kept", r)
	}
	if got := s.get(t, b.OrderID).State; got != StatePendingPayment {
		t.Errorf("got %s, want PENDING_PAYMENT", got)
	}
	if r := s.announce(t, first); r.result() != applied() {
		t.Errorf("the first again: got %s, want its first answer", r)
	}
}

// C66: the provider writes a callback anew for each attempt, with another time,
// in another order and with a counter that it did not have.
func TestRepetitionThatIsWrittenAnewGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	say := func(at, more string) string {
		return fmt.Sprintf(`{%s "data": {"payment_id": "pay_1", "currency": "CNY", "amount": 49900, "order_id": %q}, "timestamp": %q, "type": "payment.succeeded"}`, more, o.OrderID, at)
	}
	for i, body := range []string{say("2026-11-30T08:00:00Z", ""), say("2026-11-30T08:00:07Z", `"pending_webhooks": 2,`), say("2026-11-30T08:00:31Z", `"attempt": 3,`)} {
		if r := s.callback(t, "msg_1", body); r.result() != applied() || !status(r, 200) {
			t.Errorf("attempt %d: got %s, want 200 applied", i+1, r)
		}
	}
	if got := s.exceptions(t); len(got) != 0 {
		t.Errorf("got %+v, want nothing for a person", got)
	}
	messagingtest.RequireStaged[OrderPaid](t, s.pool)
}

func TestFailedPaymentIsPartOfTheHistory(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	r := s.announce(t, announcement{kind: PaymentFailed, orderID: o.OrderID, paymentID: "pay_1", amount: 49900, currency: "CNY"})
	if r.result() != (Outcome{Result: ResultNoted}) || !status(r, 200) {
		t.Errorf("got %s, want 200 noted", r)
	}
	got := s.get(t, o.OrderID)
	if got.State != StatePendingPayment || got.Version != 1 || len(got.History) != 2 || got.History[1].What != "payment_failed" {
		t.Errorf("got %+v, want a pending order whose history knows of the failure", got)
	}
	if r := s.pay(t, o, "pay_1"); r.result() != applied() {
		t.Errorf("then it succeeds: got %s, want applied", r)
	}
}
