package order

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The SQL of what the provider announced and no order shows.

const sqlExceptions = `
SELECT exception_id, state, reason, explanation, kind, order_id, payment_id, refund_id, amount, currency,
       provider_at, callback_id, occurrences, first_seen_at, last_seen_at, settled_at
  FROM payment_exception
 WHERE exception_id > $1 AND state IN ('open', 'held')
 ORDER BY exception_id
 LIMIT $2`

// waitingExceptions returns up to limit exceptions that wait for somebody,
// those that have waited longest first, behind the id after.
func waitingExceptions(ctx context.Context, q querier, after int64, limit int) ([]Exception, error) {
	rows, _ := q.Query(ctx, sqlExceptions, after, limit)
	exceptions, err := pgx.CollectRows(rows, scanException)
	if err != nil {
		return nil, fmt.Errorf("list payment exceptions: %w", err)
	}
	return exceptions, nil
}

// sqlExceptionsBy takes for open also what has been held for an hour: its payment
// may never be announced, and money was paid back.
const sqlExceptionsBy = `
SELECT exception_id, state, reason, explanation, kind, order_id, payment_id, refund_id, amount, currency,
       provider_at, callback_id, occurrences, first_seen_at, last_seen_at, settled_at
  FROM payment_exception
 WHERE exception_id > @after AND (@order_id = '' OR order_id = @order_id)
   AND (state = ANY(@states::text[])
     OR state = 'held' AND 'open' = ANY(@states::text[]) AND first_seen_at < clock_timestamp() - interval '1 hour')
 ORDER BY exception_id
 LIMIT @limit`

// exceptionsBy is waitingExceptions for any states, and of one order if orderID
// is not empty.
func exceptionsBy(ctx context.Context, q querier, states []ExceptionState, orderID string, after int64, limit int) ([]Exception, error) {
	rows, _ := q.Query(ctx, sqlExceptionsBy, pgx.StrictNamedArgs{"states": states, "order_id": orderID, "after": after, "limit": limit})
	exceptions, err := pgx.CollectRows(rows, scanException)
	if err != nil {
		return nil, fmt.Errorf("list payment exceptions: %w", err)
	}
	return exceptions, nil
}

const sqlException = `
SELECT exception_id, state, reason, explanation, kind, order_id, payment_id, refund_id, amount, currency,
       provider_at, callback_id, occurrences, first_seen_at, last_seen_at, settled_at
  FROM payment_exception WHERE exception_id = $1`

// sqlExceptionBody finds what the provider sent, unless it has been erased.
const sqlExceptionBody = `
SELECT body FROM payment_callback WHERE callback_id = $1 AND body_sha256 IS NULL`

// findException returns one exception and the body of the callback that said
// so first, nil once that is erased. It returns errNoException if there is none.
// Of a callback under an id that was used before there is no body: what is kept
// under that id is what the other one said.
func findException(ctx context.Context, q querier, id int64) (e Exception, body []byte, err error) {
	rows, _ := q.Query(ctx, sqlException, id)
	e, err = pgx.CollectExactlyOneRow(rows, scanException)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, nil, errNoException
	}
	if err != nil {
		return e, nil, fmt.Errorf("read payment exception %d: %w", id, err)
	}
	if e.Reason == ReasonCallbackReused {
		return e, nil, nil
	}
	rows, _ = q.Query(ctx, sqlExceptionBody, e.CallbackID)
	bodies, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return e, nil, fmt.Errorf("read callback of payment exception %d: %w", id, err)
	}
	if len(bodies) > 0 {
		body = bodies[0]
	}
	return e, body, nil
}

// sqlSettleException ends what waits, and nothing that has ended: of two people
// who settle the same, one does. It may wait for a payment that releases a held
// refund at the same moment; then that one has ended it.
const sqlSettleException = `
WITH waiting AS (
	SELECT exception_id, state FROM payment_exception WHERE exception_id = $1 AND state IN ('open', 'held') FOR UPDATE
)
UPDATE payment_exception e SET state = 'settled', settled_at = clock_timestamp()
  FROM waiting w
 WHERE e.exception_id = w.exception_id
RETURNING w.state, e.reason`

func settleException(ctx context.Context, tx pgx.Tx, id int64) (was ExceptionState, reason Reason, err error) {
	err = tx.QueryRow(ctx, sqlSettleException, id).Scan(&was, &reason)
	if errors.Is(err, pgx.ErrNoRows) {
		return was, reason, errNotWaiting
	}
	if err != nil {
		return was, reason, fmt.Errorf("settle payment exception %d: %w", id, err)
	}
	return was, reason, nil
}

const sqlOrderExceptions = `
SELECT exception_id, state, reason, explanation, kind, order_id, payment_id, refund_id, amount, currency,
       provider_at, callback_id, occurrences, first_seen_at, last_seen_at, settled_at
  FROM payment_exception
 WHERE order_id = $1 AND state IN ('open', 'held')
 ORDER BY exception_id`

func scanException(row pgx.CollectableRow) (Exception, error) {
	var e Exception
	err := row.Scan(&e.ID, &e.State, &e.Reason, &e.Explanation, &e.Kind, &e.OrderID, &e.PaymentID, &e.RefundID,
		&e.Amount.Amount, &e.Amount.Currency, &e.ProviderAt, &e.CallbackID, &e.Occurrences, &e.FirstSeenAt, &e.LastSeenAt, &e.SettledAt)
	return e, err
}
