package order

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orderpaid/platform/postgres"
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

// C68: a request comes again in the very moment in which its key is forgotten.
// It is told to come once more, and is a new one then.
func TestKeyThatIsForgottenWhileItIsLookedUpIsAskedForOnceMore(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(t, `INSERT INTO idempotency_key (route, key, request_hash, status, response) VALUES ('r', 'old', 'hash', 201, '{}')`)
	claim := func(retention func()) (answer *storedAnswer, err error) {
		err = postgres.InTx(t.Context(), s.pool, func(tx pgx.Tx) error {
			answer, err = claimKey(t.Context(), afterExec{tx, retention}, "r", "old", []byte("hash"))
			return err
		})
		return answer, err
	}
	if _, err := claim(func() { s.exec(t, `DELETE FROM idempotency_key`) }); !errors.Is(err, errKeyBusy) {
		t.Errorf("got %v, want %v", err, errKeyBusy)
	}
	if answer, err := claim(func() {}); answer != nil || err != nil {
		t.Errorf("the second time: got %+v, %v, want a new key", answer, err)
	}
}

// afterExec is a transaction in which something happens elsewhere right after a
// statement.
type afterExec struct {
	pgx.Tx
	then func()
}

func (tx afterExec) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	defer tx.then()
	return tx.Tx.Exec(ctx, sql, args...)
}
