package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The SQL of orders, of what follows from them, and of idempotency keys. That
// of products is in store_catalogue.go, that of callbacks and exceptions in
// store_callbacks.go. Every function here runs in a transaction that
// service.go or the consumer has opened.

var errNoOrder = errors.New("no such order")

const sqlClaimKey = `
INSERT INTO idempotency_key (route, key, request_hash) VALUES ($1, $2, $3)
ON CONFLICT (route, key) DO NOTHING`

const sqlStoredAnswer = `
SELECT request_hash, status, response FROM idempotency_key WHERE route = $1 AND key = $2`

// A storedAnswer is what the first request of an idempotency key got.
type storedAnswer struct {
	requestHash []byte
	status      int
	body        []byte
}

// claimKey makes the key this transaction's own, or returns the answer that it
// stands for. While a twin of the request is still in its transaction, the
// INSERT waits for it to end, at most for the session's lock_timeout. A key that
// is forgotten at this moment is errKeyBusy.
func claimKey(ctx context.Context, tx pgx.Tx, route, key string, hash []byte) (answer *storedAnswer, err error) {
	tag, err := tx.Exec(ctx, sqlClaimKey, route, key, hash)
	if err != nil {
		return nil, fmt.Errorf("claim idempotency key: %w", err)
	}
	if tag.RowsAffected() == 1 {
		return nil, nil
	}
	answer = new(storedAnswer)
	row := tx.QueryRow(ctx, sqlStoredAnswer, route, key)
	err = row.Scan(&answer.requestHash, &answer.status, &answer.body)
	if errors.Is(err, pgx.ErrNoRows) { // retention has forgotten it in between: asked once more, it is a new key
		return nil, errKeyBusy
	}
	if err != nil {
		return nil, fmt.Errorf("read stored answer: %w", err)
	}
	return answer, nil
}

const sqlStoreAnswer = `
UPDATE idempotency_key SET status = $3, response = $4 WHERE route = $1 AND key = $2`

// storeAnswer completes a claimed key.
func storeAnswer(ctx context.Context, tx pgx.Tx, route, key string, status int, body []byte) error {
	if _, err := tx.Exec(ctx, sqlStoreAnswer, route, key, status, body); err != nil {
		return fmt.Errorf("store answer: %w", err)
	}
	return nil
}

// An entry of an order's history: what happened, and who brought it about.
type entry struct {
	Version int64
	What    string // created, paid, refunded, cancelled, payment_failed
	Actor   string
	Note    string // in words
	At      time.Time
}

const (
	actorCustomer = "customer"
	actorProvider = "payment provider"
)

const sqlInsertOrder = `
INSERT INTO orders (order_id, user_id, state, version, currency, total_amount, created_at)
VALUES (@order_id, @user_id, @state, @version, @currency, @total_amount, @created_at)`

const sqlInsertLines = `
INSERT INTO order_line (order_id, line_no, sku, title_en, title_zh, title_ja, quantity, unit_amount, line_amount)
SELECT @order_id, n, sku, title_en, title_zh, title_ja, quantity, unit_amount, line_amount
  FROM unnest(@skus::text[], @titles_en::text[], @titles_zh::text[], @titles_ja::text[], @quantities::bigint[],
              @unit_amounts::bigint[], @line_amounts::bigint[])
       WITH ORDINALITY AS l(sku, title_en, title_zh, title_ja, quantity, unit_amount, line_amount, n)`

const sqlInsertEntry = `
INSERT INTO order_history (order_id, version, entry, actor, note, at)
VALUES (@order_id, @version, @entry, @actor, @note, @at)`

// insertOrder writes a new order with its lines and the first entry of its
// history, in one round trip.
func insertOrder(ctx context.Context, tx pgx.Tx, o Order) error {
	n := len(o.Lines)
	skus, en, zh, ja := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	quantities, units, totals := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, l := range o.Lines {
		skus[i], en[i], zh[i], ja[i] = l.SKU, l.Titles.EN, l.Titles.ZH, l.Titles.JA
		quantities[i], units[i], totals[i] = l.Quantity, l.Unit.Amount, l.Total.Amount
	}
	b := new(pgx.Batch)
	b.Queue(sqlInsertOrder, pgx.StrictNamedArgs{
		"order_id": o.ID, "user_id": o.UserID, "state": o.State, "version": o.Version,
		"currency": o.Total.Currency, "total_amount": o.Total.Amount, "created_at": o.CreatedAt,
	})
	b.Queue(sqlInsertLines, pgx.StrictNamedArgs{
		"order_id": o.ID, "skus": skus, "titles_en": en, "titles_zh": zh, "titles_ja": ja,
		"quantities": quantities, "unit_amounts": units, "line_amounts": totals,
	})
	queueEntry(b, o.ID, createdEntry(o))
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("insert order %s: %w", o.ID, err)
	}
	return nil
}

// createdEntry is the first entry of every order's history.
func createdEntry(o Order) entry { return entry{o.Version, "created", actorCustomer, "", o.CreatedAt} }

func queueEntry(b *pgx.Batch, orderID string, e entry) *pgx.QueuedQuery {
	return b.Queue(sqlInsertEntry, pgx.StrictNamedArgs{
		"order_id": orderID, "version": e.Version, "entry": e.What, "actor": e.Actor, "note": e.Note, "at": e.At,
	})
}

// maxFailures is how many failed payments an order's history tells of. Who tries
// stolen cards makes thousands, and the history is read whole. The callbacks of
// all of them are kept.
const maxFailures = 100

const sqlInsertFailure = `
INSERT INTO order_history (order_id, version, entry, actor, note, at)
SELECT @order_id, @version, 'payment_failed', @actor, @note, @at
 WHERE (SELECT count(*) FROM order_history WHERE order_id = @order_id AND entry = 'payment_failed') < @limit`

// noteFailure notes a payment that did not succeed, which changes nothing about
// the order. The caller holds the order's row lock.
func noteFailure(ctx context.Context, tx pgx.Tx, o Order, note string, at time.Time) error {
	_, err := tx.Exec(ctx, sqlInsertFailure, pgx.StrictNamedArgs{
		"order_id": o.ID, "version": o.Version, "actor": actorProvider, "note": note, "at": at, "limit": maxFailures,
	})
	if err != nil {
		return fmt.Errorf("note a failed payment of order %s: %w", o.ID, err)
	}
	return nil
}

// sqlLockOrder must stay a statement of its own. Joined to payment, a
// statement that waited for the lock would see the order as it is now and the
// payment as it was when the wait began.
const sqlLockOrder = `
SELECT order_id, user_id, state, version, currency, total_amount, points, created_at, paid_at, cancelled_at, cancel_reason
  FROM orders
 WHERE order_id = $1
   FOR UPDATE`

const sqlPayment = `
SELECT payment_id, amount, currency, provider_at FROM payment WHERE order_id = $1`

const sqlRefunds = `
SELECT refund_id, payment_id, amount, points, provider_at FROM refund WHERE order_id = $1 ORDER BY recorded_at, refund_id`

// lockOrder returns the order with what its rules need (all but the lines) and
// keeps everybody else from changing it until tx ends. It returns errNoOrder
// if there is none.
func lockOrder(ctx context.Context, tx pgx.Tx, id string) (Order, error) {
	return loadOrder(ctx, tx, id, sqlLockOrder)
}

func loadOrder(ctx context.Context, tx pgx.Tx, id, sqlOrder string, more ...func(b *pgx.Batch)) (Order, error) {
	var o Order
	b := new(pgx.Batch)
	b.Queue(sqlOrder, id).Query(func(rows pgx.Rows) error {
		var err error
		o, err = pgx.CollectExactlyOneRow(rows, scanOrder)
		return err
	})
	b.Queue(sqlPayment, id).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&o.Payment.ID, &o.Payment.Amount.Amount, &o.Payment.Amount.Currency, &o.Payment.At},
			func() error { return nil })
		return err
	})
	b.Queue(sqlRefunds, id).Query(func(rows pgx.Rows) error {
		var err error
		o.Refunds, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Refund, error) {
			r := Refund{Amount: Money{Currency: o.Total.Currency}}
			err := row.Scan(&r.ID, &r.PaymentID, &r.Amount.Amount, &r.Points, &r.At)
			return r, err
		})
		return err
	})
	for _, queue := range more {
		queue(b)
	}
	err := tx.SendBatch(ctx, b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return Order{}, errNoOrder
	}
	if err != nil {
		return Order{}, fmt.Errorf("load order %s: %w", id, err)
	}
	return o, nil
}

func scanOrder(row pgx.CollectableRow) (Order, error) {
	var o Order
	var paidAt, cancelledAt *time.Time
	var cancelReason *string
	err := row.Scan(&o.ID, &o.UserID, &o.State, &o.Version, &o.Total.Currency, &o.Total.Amount, &o.Points,
		&o.CreatedAt, &paidAt, &cancelledAt, &cancelReason)
	if paidAt != nil {
		o.PaidAt = *paidAt
	}
	if cancelledAt != nil {
		o.CancelledAt, o.CancelReason = *cancelledAt, *cancelReason
	}
	return o, err
}

const sqlUpdateOrder = `
UPDATE orders
   SET state = @state, version = @version, refunded_amount = @refunded_amount, points = @points,
       points_taken_back = @points_taken_back, paid_at = @paid_at, cancelled_at = @cancelled_at, cancel_reason = @cancel_reason
 WHERE order_id = @order_id AND version = @version - 1`

// saveOrder writes an order that a rule has changed and says so in its
// history, and sends along what more queues. The caller holds the row's lock;
// the condition on the version is there for the day on which one does not.
func saveOrder(ctx context.Context, tx pgx.Tx, o Order, e entry, more ...func(b *pgx.Batch)) error {
	b := new(pgx.Batch)
	b.Queue(sqlUpdateOrder, pgx.StrictNamedArgs{
		"order_id": o.ID, "state": o.State, "version": o.Version,
		"refunded_amount": o.Refunded().Amount, "points": o.Points, "points_taken_back": o.PointsTakenBack(),
		"paid_at": orNull(o.PaidAt), "cancelled_at": orNull(o.CancelledAt), "cancel_reason": orNull(o.CancelReason),
	}).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("version %d does not follow the stored one", o.Version)
		}
		return nil
	})
	queueEntry(b, o.ID, e)
	for _, queue := range more {
		queue(b)
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("save order %s: %w", o.ID, err)
	}
	return nil
}

// orNull returns nil for a zero value, which PostgreSQL sees as NULL.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

const sqlLines = `
SELECT sku, title_en, title_zh, title_ja, quantity, unit_amount, line_amount
  FROM order_line
 WHERE order_id = $1
 ORDER BY line_no`

const sqlHistory = `
SELECT version, entry, actor, note, at FROM order_history WHERE order_id = $1 ORDER BY history_id`

const sqlFollowUps = `
SELECT kind, state, since, promised_by, code FROM follow_up WHERE order_id = $1 ORDER BY kind DESC`

const sqlReadOrder = `
SELECT order_id, user_id, state, version, currency, total_amount, points, created_at, paid_at, cancelled_at, cancel_reason
  FROM orders
 WHERE order_id = $1`

// A record is an order with everything that is told about it.
type record struct {
	Order
	FollowUps  []FollowUp
	Exceptions []Exception // what the provider said and the order could not follow
	History    []entry
}

// readOrder returns what GET /v1/orders/{id} tells, in one round trip. The
// statements see one state of the order only if tx is REPEATABLE READ.
func readOrder(ctx context.Context, tx pgx.Tx, id string) (record, error) {
	var rec record
	var lines []Line
	more := func(b *pgx.Batch) {
		b.Queue(sqlLines, id).Query(func(rows pgx.Rows) (err error) {
			lines, err = pgx.CollectRows(rows, scanLine)
			return err
		})
		b.Queue(sqlFollowUps, id).Query(func(rows pgx.Rows) (err error) {
			rec.FollowUps, err = pgx.CollectRows(rows, pgx.RowToStructByPos[FollowUp])
			return err
		})
		b.Queue(sqlOrderExceptions, id).Query(func(rows pgx.Rows) (err error) {
			rec.Exceptions, err = pgx.CollectRows(rows, scanException)
			return err
		})
		b.Queue(sqlHistory, id).Query(func(rows pgx.Rows) (err error) {
			rec.History, err = pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
			return err
		})
	}
	o, err := loadOrder(ctx, tx, id, sqlReadOrder, more)
	if err != nil {
		return record{}, err
	}
	for i := range lines {
		lines[i].Unit.Currency, lines[i].Total.Currency = o.Total.Currency, o.Total.Currency
	}
	rec.Order, rec.Lines = o, lines
	return rec, nil
}

func scanLine(row pgx.CollectableRow) (Line, error) {
	var l Line
	err := row.Scan(&l.SKU, &l.Titles.EN, &l.Titles.ZH, &l.Titles.JA, &l.Quantity, &l.Unit.Amount, &l.Total.Amount)
	return l, err
}

const sqlInsertFollowUp = `
INSERT INTO follow_up (order_id, kind, state, since, promised_by, code)
VALUES (@order_id, @kind, @state, @since, @promised_by, @code)`

// insertFollowUps notes what the customer now waits for, with [saveOrder].
func insertFollowUps(orderID string, followUps []FollowUp) func(b *pgx.Batch) {
	return func(b *pgx.Batch) {
		for _, f := range followUps {
			b.Queue(sqlInsertFollowUp, pgx.StrictNamedArgs{
				"order_id": orderID, "kind": f.Kind, "state": f.State, "since": f.Since, "promised_by": f.PromisedBy, "code": f.Code,
			})
		}
	}
}

// sqlSettleFollowUps never touches what is done: a late failure of a mail
// that was sent in the end is no longer news. It returns how many of the given
// orders have no such follow-up.
const sqlSettleFollowUps = `
WITH told AS (
	SELECT DISTINCT ON (order_id) order_id, since, code
	  FROM unnest(@order_ids::text[], @sinces::timestamptz[], @codes::text[]) AS t(order_id, since, code)
	 ORDER BY order_id, since DESC
), settled AS (
	UPDATE follow_up f
	   SET state = @state, since = told.since, code = told.code
	  FROM told
	 WHERE f.order_id = told.order_id AND f.kind = @kind AND f.state <> 'done'
)
SELECT count(*) FROM told
 WHERE NOT EXISTS (SELECT FROM follow_up f WHERE f.order_id = told.order_id AND f.kind = @kind)`

// A settlement is news about one follow-up of one order.
type settlement struct {
	orderID string
	since   time.Time
	code    string
}

// settleFollowUps gives the follow-ups of one kind their new state, whichever
// of them exist, and returns how many do not.
func settleFollowUps(ctx context.Context, tx pgx.Tx, kind FollowUpKind, state FollowUpState, news []settlement) (missing int64, err error) {
	ids, sinces, codes := make([]string, len(news)), make([]time.Time, len(news)), make([]string, len(news))
	for i, n := range news {
		ids[i], sinces[i], codes[i] = n.orderID, n.since, n.code
	}
	err = tx.QueryRow(ctx, sqlSettleFollowUps, pgx.StrictNamedArgs{
		"order_ids": ids, "sinces": sinces, "codes": codes, "state": state, "kind": kind,
	}).Scan(&missing)
	if err != nil {
		return 0, fmt.Errorf("settle %d follow-ups: %w", len(news), err)
	}
	return missing, nil
}

const sqlForgetKeys = `
DELETE FROM idempotency_key WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM idempotency_key WHERE created_at < clock_timestamp() - $1::interval LIMIT 1000))`
