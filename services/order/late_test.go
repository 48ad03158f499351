package order

import (
	"fmt"
	"testing"

	"orderpaid/platform/messaging/messagingtest"
)

// What a provider says of one payment must not touch another's, and what it says
// again must not count again, whatever it has said in between.

// C70: the customer paid twice by mistake, and the second payment is given back.
func TestRefundOfASecondPaymentLeavesTheOrderPaid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.pay(t, o, "pay_1")
	if r := s.pay(t, o, "pay_2"); r.result() != kept(ReasonSecondPayment) {
		t.Errorf("the second payment: got %s, want it kept", r)
	}
	if r := s.refund(t, o, "pay_2", "re_1", 49900); r.result() != kept(ReasonRefundElsewhere) {
		t.Errorf("its refund: got %s, want it kept", r)
	}
	if got := s.get(t, o.OrderID); got.State != StatePaid || got.RefundedTotal.Amount != 0 || got.Points != 499 || got.Version != 2 {
		t.Errorf("got %+v, want it paid, with nothing given back", got)
	}
	if got := len(messagingtest.Staged[OrderRefunded](t, s.pool)); got != 0 {
		t.Errorf("got %d events of refunds, want none", got)
	}
}

// C71: the first attempt has failed and is announced late, after the second has
// succeeded.
func TestFailureOfAnEarlierAttemptLeavesTheOrderPaid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.pay(t, o, "pay_2")
	r := s.announce(t, announcement{kind: PaymentFailed, orderID: o.OrderID, paymentID: "pay_1", amount: 49900, currency: "CNY"})
	if r.result() != (Outcome{Result: ResultNoted}) {
		t.Errorf("got %s, want it noted", r)
	}
	got := s.get(t, o.OrderID)
	if got.State != StatePaid || got.Version != 2 || len(s.exceptions(t)) != 0 {
		t.Errorf("got %+v, want it paid and nothing for a person", got)
	}
	messagingtest.RequireStaged[OrderPaid](t, s.pool)
}

// C72: of several refunds the first is announced again, when it is not the last
// one that was heard of any more.
func TestRefundThatIsAnnouncedAgainAfterOthersIsTheSame(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.pay(t, o, "pay_1")
	for _, refund := range []string{"re_1", "re_2"} {
		if r := s.refund(t, o, "pay_1", refund, 10_000); r.result() != applied() {
			t.Fatalf("%s: got %s, want applied", refund, r)
		}
	}
	for _, refund := range []string{"re_1", "re_2", "re_1"} { // each under a callback id of its own
		if r := s.refund(t, o, "pay_1", refund, 10_000); r.result() != alreadyApplied() {
			t.Errorf("%s again: got %s, want already applied", refund, r)
		}
	}
	if got := s.get(t, o.OrderID); got.RefundedTotal.Amount != 20_000 || got.Version != 4 {
		t.Errorf("got %s refunded in version %d, want 200.00 in 4", got.RefundedTotal.Formatted, got.Version)
	}
}

// C91: somebody tries stolen cards on one order. Its history stays short enough
// to be read, and what the provider said is kept all the same.
func TestThousandsOfFailedPaymentsLeaveAHistoryThatCanBeRead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.exec(t, `INSERT INTO order_history (order_id, version, entry, actor, note, at)
		SELECT $1, 1, 'payment_failed', 'payment provider', 'payment ' || n || ' did not succeed', now() FROM generate_series(1, $2::int) n`, o.OrderID, maxFailures-1)
	for i := range 5 {
		r := s.announce(t, announcement{kind: PaymentFailed, orderID: o.OrderID, paymentID: fmt.Sprintf("pay_%d", i), amount: 49900, currency: "CNY"})
		if r.result() != (Outcome{Result: ResultNoted}) {
			t.Errorf("got %s, want it noted", r)
		}
	}
	if got := len(s.get(t, o.OrderID).History); got != 1+maxFailures {
		t.Errorf("got %d lines of history, want %d", got, 1+maxFailures)
	}
	if got := s.count(t, "payment_callback"); got != 5 {
		t.Errorf("got %d callbacks, want all 5", got)
	}
	if r := s.pay(t, o, "pay_good"); r.result() != applied() {
		t.Errorf("the right one after all: got %s, want applied", r)
	}
	if got := s.get(t, o.OrderID).History; got[len(got)-1].What != "paid" {
		t.Errorf("got %+v last, want the payment", got[len(got)-1])
	}
}
