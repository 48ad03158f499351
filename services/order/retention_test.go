package order

import (
	"testing"
	"time"
)

func TestOldBodiesAndKeysGoAndRepetitionsAreStillKnown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	paid, waits := s.placed(t), s.placed(t)
	good := announcement{id: "msg_good", kind: PaymentSucceeded, orderID: paid.OrderID, paymentID: "pay_1", amount: paid.Total.Amount, currency: "CNY"}
	wrong := announcement{id: "msg_wrong", kind: PaymentSucceeded, orderID: waits.OrderID, paymentID: "pay_2", amount: 1, currency: "CNY"}
	s.announce(t, good)
	s.announce(t, wrong)
	young := s.placed(t)
	s.pay(t, young, "pay_3")
	s.exec(t, `UPDATE payment_callback SET received_at = received_at - interval '100 days' WHERE callback_id IN ('msg_good', 'msg_wrong')`)
	s.exec(t, `UPDATE idempotency_key SET created_at = created_at - interval '31 days' WHERE ctid <> (SELECT max(ctid) FROM idempotency_key)`)

	report, err := Retain(t.Context(), s.pool, RetentionConfig{})
	if want := (RetentionReport{Bodies: 1, Keys: 2}); err != nil || report != want {
		t.Errorf("got %+v, %v, want %+v: what waits for a person keeps its body", report, err, want)
	}
	if got := s.count(t, `payment_callback WHERE body = '' AND body_sha256 IS NOT NULL`); got != 1 {
		t.Errorf("got %d erased bodies, want 1", got)
	}
	if r := s.announce(t, good); r.result() != applied() {
		t.Errorf("got %s for a repetition, want the first answer", r)
	}
	good.amount++
	if r := s.announce(t, good); r.result() != kept(ReasonCallbackReused) {
		t.Errorf("got %s for another body under the same id, want it kept", r)
	}
	s.exec(t, `UPDATE payment_exception SET state = 'settled'`)
	if report, err := Retain(t.Context(), s.pool, RetentionConfig{}); err != nil || report.Bodies != 1 {
		t.Errorf("got %+v, %v, want the settled one's body erased", report, err)
	}
}

func TestKeysThatWouldBeForgottenTooSoonAreRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []RetentionConfig{{Keys: time.Hour}, {Keys: -1}, {Callbacks: -1}} {
		if _, err := Retain(t.Context(), nil, cfg); err == nil {
			t.Errorf("%+v: got no error", cfg)
		}
	}
}
