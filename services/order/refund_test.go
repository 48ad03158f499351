package order

import (
	"fmt"
	"testing"

	"orderpaid/platform/messaging/messagingtest"
)

func TestRefundsGiveBackMoneyAndPoints(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.pay(t, o, "pay_1")
	for i, amount := range []int64{10_050, 14_950, 24_900} {
		if r := s.refund(t, o, "pay_1", fmt.Sprintf("re_%d", i), amount); r.result() != applied() {
			t.Fatalf("refund %d: got %s, want applied", i, r)
		}
	}
	got := s.get(t, o.OrderID)
	if got.State != StatePaid || got.Version != 5 || got.RefundedTotal != o.Total || got.Points != 0 || len(got.Refunds) != 3 {
		t.Errorf("got %+v, want it paid in version 5, with everything paid back", got)
	}
	if want := "Paid, 499.00 CNY. All of it was paid back."; got.Says != want {
		t.Errorf("got %q, want %q", got.Says, want)
	}
	var points, money int64
	for i, ev := range messagingtest.Staged[OrderRefunded](t, s.pool) {
		points += ev.Data.PointsDelta
		money += ev.Data.Refund.Amount
		if last := i == 2; ev.AggregateVersion != int64(i+3) || ev.Data.Full != last || ev.Data.RefundedTotal.Amount != money || ev.Data.PaymentID != "pay_1" {
			t.Errorf("event %d: got version %d, %+v", i, ev.AggregateVersion, ev.Data)
		}
	}
	if points != -499 || money != 49900 {
		t.Errorf("got %d points and %d taken back, want -499 and 49900", points, money)
	}
}

func TestRefundAnnouncedTwentyTimesIsOneRefund(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.pay(t, o, "pay_1")
	atOnce(20, func(int) {
		if r := s.refund(t, o, "pay_1", "re_1", 10_000); !status(r, 200) {
			t.Errorf("got %s, want 200", r)
		}
	})
	messagingtest.RequireStaged[OrderRefunded](t, s.pool)
	if got := s.get(t, o.OrderID); got.RefundedTotal.Amount != 10_000 || got.Version != 3 {
		t.Errorf("got %s refunded in version %d, want 100.00 in 3", got.RefundedTotal.Formatted, got.Version)
	}
}

// C88: a refund is its own amount and no running total; what is too much in sum is kept
// for a person.
func TestParallelRefundsNeverExceedThePayment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.pay(t, o, "pay_1")
	replies := make([]reply, 10)
	atOnce(len(replies), func(i int) { replies[i] = s.refund(t, o, "pay_1", fmt.Sprintf("re_%d", i), 20_000) })
	accepted := 0
	for _, r := range replies {
		switch r.result() {
		case applied():
			accepted++
		case kept(ReasonRefundTooLarge):
		default:
			t.Errorf("got %s, want applied or kept", r)
		}
	}
	if got := s.get(t, o.OrderID).RefundedTotal.Amount; accepted != 2 || got != 40_000 {
		t.Errorf("got %d refunds and %d paid back, want 2 and 40000", accepted, got)
	}
}

// C31: a refund that is announced before its payment waits for it.
func TestRefundBeforeItsPaymentIsHeldAndThenApplied(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	early := announcement{id: "msg_early", kind: PaymentRefunded, orderID: o.OrderID, paymentID: "pay_1", refundID: "re_1", amount: 49_900, currency: "CNY"}
	if r := s.announce(t, early); r.result() != held() || !status(r, 202) {
		t.Fatalf("got %s, want 202 held", r)
	}
	if r := s.announce(t, early); r.result() != held() {
		t.Errorf("again: got %s, want held", r)
	}
	if got := s.exceptions(t); len(got) != 1 || got[0].State != ExceptionHeld {
		t.Errorf("got %+v, want one exception that is held", got)
	}
	if r := s.pay(t, o, "pay_1"); r.result() != applied() {
		t.Fatalf("pay: got %s, want applied", r)
	}
	got := s.get(t, o.OrderID)
	if got.State != StatePaid || got.Version != 3 || got.RefundedTotal != o.Total || got.Points != 0 {
		t.Errorf("got %+v, want it paid and fully refunded in version 3", got)
	}
	paid, refunded := messagingtest.RequireStaged[OrderPaid](t, s.pool), messagingtest.RequireStaged[OrderRefunded](t, s.pool)
	if paid.AggregateVersion != 2 || refunded.AggregateVersion != 3 || paid.Data.PointsDelta+refunded.Data.PointsDelta != 0 {
		t.Errorf("got %+v and %+v, want versions 2 and 3, and no points left", paid, refunded)
	}
	if got := s.exceptions(t); len(got) != 0 {
		t.Errorf("got %+v, want nothing to wait for", got)
	}
	if r := s.announce(t, early); r.result() != alreadyApplied() {
		t.Errorf("once more: got %s, want already_applied", r)
	}
}

func TestHeldRefundThatCannotBeAppliedDoesNotStopThePayment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.refund(t, o, "pay_1", "re_1", 30_000)
	s.refund(t, o, "pay_1", "re_2", 30_000) // together more than the order
	s.refund(t, o, "pay_2", "re_3", 1)      // of a payment that never comes
	if r := s.pay(t, o, "pay_1"); r.result() != applied() {
		t.Fatalf("got %s, want applied", r)
	}
	if got := s.get(t, o.OrderID); got.State != StatePaid || got.RefundedTotal.Amount != 30_000 {
		t.Errorf("got %s with %s paid back, want PAID with 300.00", got.State, got.RefundedTotal.Formatted)
	}
	got := map[Reason]ExceptionState{}
	for _, e := range s.exceptions(t) {
		got[e.Reason] = e.State
	}
	if len(got) != 2 || got[ReasonRefundTooLarge] != ExceptionOpen || got[ReasonRefundElsewhere] != ExceptionOpen {
		t.Errorf("got %v, want both open: neither can ever be applied", got)
	}
}

func TestRefundAndPaymentAtTheSameMomentBothCount(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for round := range 15 {
		o := s.placed(t)
		id := fmt.Sprintf("pay_%d", round)
		atOnce(2, func(i int) {
			if i == 0 {
				s.pay(t, o, id)
			} else {
				s.refund(t, o, id, "re_1", 49_900)
			}
		})
		if got := s.get(t, o.OrderID); got.State != StatePaid || got.Version != 3 || got.RefundedTotal != o.Total {
			t.Errorf("got %s in version %d with %s paid back, want all of it in version 3", got.State, got.Version, got.RefundedTotal.Formatted)
		}
	}
	if got := s.exceptions(t); len(got) != 0 {
		t.Errorf("got %+v, want nothing left to wait for", got)
	}
}
