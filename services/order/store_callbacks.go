package order

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The SQL of what the payment provider says.

const sqlRecordCallback = `
INSERT INTO payment_callback (callback_id, order_id, body, received_at) VALUES (@callback_id, @order_id, @body, @received_at)
ON CONFLICT (callback_id) DO NOTHING`

// sqlCallback compares with the hash once retention has erased the body.
const sqlCallback = `
SELECT CASE WHEN body_sha256 IS NULL THEN body = $2 ELSE body_sha256 = sha256($2::bytea) END, body, result, reason
  FROM payment_callback WHERE callback_id = $1`

// recordCallback keeps a callback as it was received. If its id is known it
// returns what was made of the first one, and whether this one says the same;
// while a twin is still in its transaction, it waits for that to end. Once the
// first body has been erased, only the same bytes say the same.
func recordCallback(ctx context.Context, tx pgx.Tx, cb Callback, at time.Time) (known *Outcome, same bool, err error) {
	tag, err := tx.Exec(ctx, sqlRecordCallback, pgx.StrictNamedArgs{
		"callback_id": cb.ID, "order_id": cb.OrderID, "body": cb.Body, "received_at": at,
	})
	if err != nil {
		return nil, false, fmt.Errorf("record callback: %w", err)
	}
	if tag.RowsAffected() == 1 {
		return nil, false, nil
	}
	known = new(Outcome)
	var first []byte
	if err := tx.QueryRow(ctx, sqlCallback, cb.ID, cb.Body).Scan(&same, &first, &known.Result, &known.Reason); err != nil {
		return nil, false, fmt.Errorf("read recorded callback: %w", err)
	}
	return known, same || cb.repeats(first), nil
}

const sqlSettleCallback = `
UPDATE payment_callback SET result = $2, reason = $3 WHERE callback_id = $1`

// settleCallback notes what was made of a recorded callback.
func settleCallback(ctx context.Context, tx pgx.Tx, callbackID string, out Outcome) error {
	if _, err := tx.Exec(ctx, sqlSettleCallback, callbackID, out.Result, out.Reason); err != nil {
		return fmt.Errorf("settle callback: %w", err)
	}
	return nil
}

const sqlInsertPayment = `
INSERT INTO payment (payment_id, order_id, amount, currency, provider_at, recorded_at)
VALUES (@payment_id, @order_id, @amount, @currency, @provider_at, @recorded_at)
ON CONFLICT (payment_id) DO NOTHING`

// insertPayment gives the order its payment. It returns false if the payment
// belongs to another order.
func insertPayment(ctx context.Context, tx pgx.Tx, orderID string, p Payment, at time.Time) (added bool, err error) {
	tag, err := tx.Exec(ctx, sqlInsertPayment, pgx.StrictNamedArgs{
		"payment_id": p.ID, "order_id": orderID, "amount": p.Amount.Amount, "currency": p.Amount.Currency,
		"provider_at": p.At, "recorded_at": at,
	})
	if err != nil {
		return false, fmt.Errorf("insert payment %s: %w", p.ID, err)
	}
	return tag.RowsAffected() == 1, nil
}

const sqlInsertRefund = `
INSERT INTO refund (payment_id, refund_id, order_id, amount, points, provider_at, recorded_at)
VALUES (@payment_id, @refund_id, @order_id, @amount, @points, @provider_at, @recorded_at)`

func insertRefund(ctx context.Context, tx pgx.Tx, orderID string, r Refund, at time.Time) error {
	_, err := tx.Exec(ctx, sqlInsertRefund, pgx.StrictNamedArgs{
		"payment_id": r.PaymentID, "refund_id": r.ID, "order_id": orderID, "amount": r.Amount.Amount, "points": r.Points,
		"provider_at": r.At, "recorded_at": at,
	})
	if err != nil {
		return fmt.Errorf("insert refund %s: %w", r.ID, err)
	}
	return nil
}

// An Exception is something that the provider announced and that the order
// could not follow.
type Exception struct {
	ID          int64
	State       ExceptionState
	Reason      Reason
	Explanation string
	Kind        CallbackType
	OrderID     string
	PaymentID   string
	RefundID    string
	Amount      Money
	ProviderAt  time.Time
	CallbackID  string // the first that said so
	Occurrences int64
	FirstSeenAt time.Time
	LastSeenAt  time.Time
	SettledAt   *time.Time // by a person
}

// ExceptionState says who has to act.
type ExceptionState string

// The states of an exception.
const (
	ExceptionOpen    ExceptionState = "open"    // a person: money has moved and no order shows it
	ExceptionHeld    ExceptionState = "held"    // nobody yet: it is applied when its payment is announced; after an hour a person looks, too
	ExceptionApplied ExceptionState = "applied" // nobody: it was held and has been applied
	ExceptionSettled ExceptionState = "settled" // nobody: a person has dealt with it
)

const sqlKeepException = `
INSERT INTO payment_exception (state, reason, explanation, kind, order_id, payment_id, refund_id, amount, currency, said_sha256,
                               provider_at, callback_id, first_seen_at, last_seen_at)
VALUES (@state, @reason, @explanation, @kind, @order_id, @payment_id, @refund_id, @amount, @currency, @said,
        @provider_at, @callback_id, @at, @at)
ON CONFLICT (reason, kind, order_id, payment_id, refund_id, amount, currency, said_sha256)
DO UPDATE SET occurrences = payment_exception.occurrences + 1, last_seen_at = excluded.last_seen_at`

// keepException keeps what a callback claims and why it was not applied. The
// same claim, under whatever callback id, is one exception that counts.
func keepException(ctx context.Context, tx pgx.Tx, cb Callback, state ExceptionState, why *Refusal, at time.Time) error {
	_, err := tx.Exec(ctx, sqlKeepException, pgx.StrictNamedArgs{
		"state": state, "reason": why.Reason, "explanation": why.Explanation, "kind": cb.Type,
		"order_id": cb.OrderID, "payment_id": cb.PaymentID, "refund_id": cb.RefundID,
		"amount": cb.Amount.Amount, "currency": cb.Amount.Currency, "said": append([]byte{}, cb.Said...), // never NULL

		"provider_at": cb.At, "callback_id": cb.ID, "at": at,
	})
	if err != nil {
		return fmt.Errorf("keep exception %s: %w", why.Reason, err)
	}
	return nil
}

// sqlHeldRefunds returns the refunds of an order that are of no payment yet,
// whatever payment they name: those of another one than the order gets can
// never be applied, and must not wait for ever. A refund is held and released
// under the lock of the order's row; a person settles it without, hence the
// lock on its own.
const sqlHeldRefunds = `
SELECT exception_id, refund_id, payment_id, amount, currency, provider_at, state = 'settled'
  FROM payment_exception
 WHERE order_id = $1 AND reason = 'refund_before_payment' AND state IN ('held', 'settled')
 ORDER BY exception_id
   FOR UPDATE`

// A heldRefund came before its payment.
type heldRefund struct {
	exceptionID int64
	refund      Refund
	settled     bool // a person has ended the waiting
}

func heldRefunds(ctx context.Context, tx pgx.Tx, orderID string) ([]heldRefund, error) {
	rows, _ := tx.Query(ctx, sqlHeldRefunds, orderID)
	held, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (heldRefund, error) {
		var h heldRefund
		err := row.Scan(&h.exceptionID, &h.refund.ID, &h.refund.PaymentID,
			&h.refund.Amount.Amount, &h.refund.Amount.Currency, &h.refund.At, &h.settled)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("read held refunds of order %s: %w", orderID, err)
	}
	return held, nil
}

const sqlApplyException = `
UPDATE payment_exception SET state = 'applied' WHERE exception_id = $1`

// sqlReopenException cannot meet the unique claim: the same claim with the new
// reason could only have come while the order was paid or cancelled, and then
// it was not held.
const sqlReopenException = `
UPDATE payment_exception SET state = 'open', reason = $2, explanation = $3, settled_at = NULL WHERE exception_id = $1`

// settleHeld ends the waiting of a held refund: applied if why is nil, and
// otherwise an open exception with another reason than before.
func settleHeld(ctx context.Context, tx pgx.Tx, h heldRefund, why *Refusal) (err error) {
	if why == nil {
		_, err = tx.Exec(ctx, sqlApplyException, h.exceptionID)
	} else {
		_, err = tx.Exec(ctx, sqlReopenException, h.exceptionID, why.Reason, why.Explanation)
	}
	if err != nil {
		return fmt.Errorf("settle held refund %s: %w", h.refund.ID, err)
	}
	return nil
}

// sqlEraseCallbacks leaves the hash, by which a repetition is still told from
// another callback under the same id.
const sqlEraseCallbacks = `
UPDATE payment_callback SET body_sha256 = sha256(body), body = ''
 WHERE callback_id IN (
	SELECT c.callback_id FROM payment_callback c
	 WHERE c.received_at < clock_timestamp() - $1::interval AND c.body_sha256 IS NULL
	   AND NOT EXISTS (SELECT FROM payment_exception e WHERE e.callback_id = c.callback_id AND e.order_id = c.order_id AND e.state IN ('open', 'held'))
	 LIMIT 1000)`
