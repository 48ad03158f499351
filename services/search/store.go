package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A slotFunc says which of the two slots a transaction writes to. newest is
// when the newest of the facts that it brings became true.
type slotFunc func(ctx context.Context, tx pgx.Tx, newest time.Time) (int16, error)

// The row stays locked until the transaction ends, so a rebuild cannot swap the
// slots under it. A time in the future is not believed: it would hide for
// ever how far the index really is.
const sqlTakeIn = `
UPDATE search_index SET indexed_as_of = greatest(indexed_as_of, least($1, clock_timestamp()))
RETURNING live_slot`

// liveSlot is the slot that answers queries.
func liveSlot(ctx context.Context, tx pgx.Tx, newest time.Time) (slot int16, err error) {
	if err := tx.QueryRow(ctx, sqlTakeIn, newest).Scan(&slot); err != nil {
		return 0, fmt.Errorf("find the live slot: %w", err)
	}
	return slot, nil
}

// sqlPutDocuments would fail if it met one order twice; putDocuments sees to
// it that it does not.
const sqlPutDocuments = `
INSERT INTO order_document (slot, order_id, user_id, state, items, currency, exponent, total_amount, created_at, version, lexemes)
SELECT @slot, d.order_id, d.user_id, d.state, d.items::jsonb, d.currency, d.exponent, d.total_amount, d.created_at, d.version, d.lexemes::tsvector
  FROM unnest(@order_ids::text[], @user_ids::text[], @states::text[], @items::text[], @currencies::text[], @exponents::smallint[],
              @totals::bigint[], @created::timestamptz[], @versions::bigint[], @lexemes::text[])
       AS d(order_id, user_id, state, items, currency, exponent, total_amount, created_at, version, lexemes)
ON CONFLICT (slot, order_id) DO UPDATE
   SET user_id = excluded.user_id, state = excluded.state, items = excluded.items, currency = excluded.currency,
       exponent = excluded.exponent, total_amount = excluded.total_amount, created_at = excluded.created_at,
       version = excluded.version, lexemes = excluded.lexemes
 WHERE excluded.version > order_document.version`

// putDocuments stores documents of new orders.
func putDocuments(ctx context.Context, tx pgx.Tx, slot int16, docs []Document) error {
	docs = newestOfEach(docs, func(d Document) (string, int64) { return d.OrderID, d.Version })
	n := len(docs)
	orderIDs, userIDs, states, items := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	currencies, exponents, totals := make([]string, n), make([]int16, n), make([]int64, n)
	created, versions, lexemes := make([]time.Time, n), make([]int64, n), make([]string, n)
	for i, d := range docs {
		shown, err := json.Marshal(d.Items)
		if err != nil {
			return fmt.Errorf("encode items of order %s: %w", d.OrderID, err)
		}
		orderIDs[i], userIDs[i], states[i], items[i] = d.OrderID, d.UserID, string(d.State), string(shown)
		currencies[i], exponents[i], totals[i] = d.Total.Currency, d.Total.Exponent, d.Total.Amount
		created[i], versions[i], lexemes[i] = d.CreatedAt, d.Version, vectorOf(d.texts()...)
	}
	_, err := tx.Exec(ctx, sqlPutDocuments, pgx.StrictNamedArgs{
		"slot": slot, "order_ids": orderIDs, "user_ids": userIDs, "states": states, "items": items,
		"currencies": currencies, "exponents": exponents, "totals": totals,
		"created": created, "versions": versions, "lexemes": lexemes,
	})
	if err != nil {
		return fmt.Errorf("put %d documents, first %s: %w", n, docs[0].OrderID, err)
	}
	return nil
}

// sqlChangeDocuments returns the changes that it did not make, with the
// document's version, or null if there is no document.
const sqlChangeDocuments = `
WITH change AS (
	SELECT order_id, version, state, refunded_amount, paid_at, refunded_at, cancelled_at
	  FROM unnest(@order_ids::text[], @versions::bigint[], @states::text[], @refunded::bigint[],
	              @paid::timestamptz[], @refunded_at::timestamptz[], @cancelled::timestamptz[])
	       AS c(order_id, version, state, refunded_amount, paid_at, refunded_at, cancelled_at)
), made AS (
	UPDATE order_document d
	   SET version = c.version,
	       state = coalesce(c.state, d.state),
	       refunded_amount = coalesce(c.refunded_amount, d.refunded_amount),
	       paid_at = coalesce(c.paid_at, d.paid_at),
	       refunded_at = coalesce(c.refunded_at, d.refunded_at),
	       cancelled_at = coalesce(c.cancelled_at, d.cancelled_at)
	  FROM change c
	 WHERE d.slot = @slot AND d.order_id = c.order_id AND c.version > d.version
	RETURNING d.order_id
)
SELECT c.order_id, d.version
  FROM change c
  LEFT JOIN order_document d ON d.slot = @slot AND d.order_id = c.order_id
 WHERE NOT EXISTS (SELECT FROM made m WHERE m.order_id = c.order_id)`

// errNoDocument: an event changes an order of which the index knows nothing,
// although messaging keeps its predecessors before it. Retrying is right: it
// is the index that is incomplete, not the event that is wrong.
var errNoDocument = errors.New("the order has no document")

// changeDocuments makes the changes whose document is older than they are, and
// returns the orders whose document was not. Several changes of one order must
// be of one kind: then the last one says it all.
func changeDocuments(ctx context.Context, tx pgx.Tx, slot int16, changes []Change) (behind map[string]bool, err error) {
	changes = newestOfEach(changes, func(c Change) (string, int64) { return c.OrderID, c.Version })
	n := len(changes)
	orderIDs, versions, states, refunded := make([]string, n), make([]int64, n), make([]*string, n), make([]*int64, n)
	paidAt, refundedAt, cancelledAt := make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
	for i, c := range changes {
		orderIDs[i], versions[i], states[i], refunded[i] = c.OrderID, c.Version, unlessZero(string(c.State)), c.Refunded
		paidAt[i], refundedAt[i], cancelledAt[i] = unlessZero(c.PaidAt), unlessZero(c.RefundedAt), unlessZero(c.CancelledAt)
	}
	rows, _ := tx.Query(ctx, sqlChangeDocuments, pgx.StrictNamedArgs{
		"slot": slot, "order_ids": orderIDs, "versions": versions, "states": states, "refunded": refunded,
		"paid": paidAt, "refunded_at": refundedAt, "cancelled": cancelledAt,
	})
	behind = map[string]bool{}
	var orderID string
	var version *int64
	_, err = pgx.ForEachRow(rows, []any{&orderID, &version}, func() error {
		if version == nil {
			return fmt.Errorf("change order %s: %w", orderID, errNoDocument)
		}
		behind[orderID] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("change %d documents: %w", n, err)
	}
	return behind, nil
}

const sqlIndexedAsOf = `SELECT indexed_as_of FROM search_index`

// indexedAsOf returns when the newest fact in the index became true, or zero.
func indexedAsOf(ctx context.Context, pool *pgxpool.Pool) (time.Time, error) {
	var asOf *time.Time
	if err := pool.QueryRow(ctx, sqlIndexedAsOf).Scan(&asOf); err != nil {
		return time.Time{}, fmt.Errorf("read how far the index is: %w", err)
	}
	if asOf == nil {
		return time.Time{}, nil
	}
	return *asOf, nil
}

// sqlFind serves every combination of conditions. Planned for the values at
// hand, the conditions that do not count vanish and the best index for the
// others is taken; see find.
const sqlFind = `
SELECT order_id, user_id, state, items, currency, exponent, total_amount, refunded_amount,
       created_at, paid_at, refunded_at, cancelled_at, version
  FROM order_document
 WHERE slot = (SELECT live_slot FROM search_index)
   AND (@lexemes::text = '' OR lexemes @@ @lexemes::text::tsquery)
   AND (@user_id::text = '' OR user_id = @user_id::text)
   AND (@state::text = '' OR state = @state::text)
   AND (@after_id::text = '' OR (created_at, order_id) < (@after_at::timestamptz, @after_id::text))
 ORDER BY created_at DESC, order_id DESC
 LIMIT @limit`

// find returns up to limit documents behind the query's position. lexemes is a
// tsquery or empty.
//
// The statement is never a named prepared one: after five uses PostgreSQL
// might keep one plan for all values of those, and a plan that is right for
// the list of everything reads the whole table for a rare word.
func find(ctx context.Context, pool *pgxpool.Pool, lexemes string, q Query, limit int) ([]Document, error) {
	rows, _ := pool.Query(ctx, sqlFind, pgx.QueryExecModeCacheDescribe, findArgs(lexemes, q, limit))
	docs, err := pgx.CollectRows(rows, scanDocument)
	if err != nil {
		return nil, fmt.Errorf("find orders: %w", err)
	}
	return docs, nil
}

func findArgs(lexemes string, q Query, limit int) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"lexemes": lexemes, "user_id": q.UserID, "state": string(q.State),
		"after_at": q.After.CreatedAt, "after_id": q.After.OrderID, "limit": limit,
	}
}

func scanDocument(row pgx.CollectableRow) (Document, error) {
	var d Document
	err := row.Scan(&d.OrderID, &d.UserID, &d.State, &d.Items, &d.Total.Currency, &d.Total.Exponent, &d.Total.Amount, &d.Refunded.Amount,
		&d.CreatedAt, &d.PaidAt, &d.RefundedAt, &d.CancelledAt, &d.Version)
	d.Refunded.Currency, d.Refunded.Exponent = d.Total.Currency, d.Total.Exponent
	return d, err
}

// newestOfEach keeps, of all values about one order, the one with the highest
// version, in the place of the first.
func newestOfEach[T any](all []T, of func(T) (orderID string, version int64)) []T {
	places := make(map[string]int, len(all))
	kept := make([]T, 0, len(all))
	for _, v := range all {
		id, version := of(v)
		at, known := places[id]
		if !known {
			places[id] = len(kept)
			kept = append(kept, v)
		} else if _, have := of(kept[at]); version > have {
			kept[at] = v
		}
	}
	return kept
}

// unlessZero makes NULL of what is not there.
func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
