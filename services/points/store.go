package points

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlBook adds entries to the ledger, and what was added to the balances, in
// one statement: a balance cannot miss an entry or count one twice.
//
// Balances are locked in the order of their users, and entries inserted in the
// order of their keys, so that two transactions that book at the same time
// wait for each other in turn and never in a circle. A thousand awards to one
// user change his row once.
const sqlBook = `
WITH added AS (
	INSERT INTO points_entry (entry_id, order_id, user_id, kind, refund_id, points, event_id)
	SELECT entry_id, order_id, user_id, kind, refund_id, points, event_id
	  FROM unnest(@entry_ids::text[], @order_ids::text[], @user_ids::text[], @kinds::text[], @refund_ids::text[], @points::bigint[], @event_ids::uuid[])
	       WITH ORDINALITY AS e(entry_id, order_id, user_id, kind, refund_id, points, event_id, n)
	 ORDER BY order_id COLLATE "C", kind, refund_id COLLATE "C", n
	    ON CONFLICT ON CONSTRAINT points_entry_once DO NOTHING
	RETURNING entry_id, user_id, points, booked_at
), balances AS (
	INSERT INTO points_balance (user_id, balance)
	SELECT user_id, sum(points)::bigint FROM added GROUP BY user_id ORDER BY user_id
	    ON CONFLICT (user_id) DO UPDATE SET balance = points_balance.balance + excluded.balance, updated_at = excluded.updated_at
)
SELECT entry_id, booked_at FROM added`

// book adds entries to the ledger and to the balances. It returns when each
// was booked; those that are missing had been booked before.
func book(ctx context.Context, tx pgx.Tx, entries []Entry) (map[string]time.Time, error) {
	rows, err := tx.Query(ctx, sqlBook, columnsOf(entries))
	if err != nil {
		return nil, fmt.Errorf("book %d entries: %w", len(entries), err)
	}
	booked := make(map[string]time.Time, len(entries))
	var id string
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		booked[id] = at
		return nil
	}); err != nil {
		return nil, fmt.Errorf("book %d entries: %w", len(entries), err)
	}
	return booked, nil
}

// columnsOf turns entries into the arrays that sqlBook takes.
func columnsOf(entries []Entry) pgx.StrictNamedArgs {
	n := len(entries)
	ids, orders, users := make([]string, n), make([]string, n), make([]string, n)
	kinds, refunds := make([]string, n), make([]string, n)
	points, events := make([]int64, n), make([]uuid.UUID, n)
	for i, e := range entries {
		ids[i], orders[i], users[i] = e.ID, e.OrderID, e.UserID
		kinds[i], refunds[i] = string(e.Kind), e.RefundID
		points[i], events[i] = e.Points, e.EventID
	}
	return pgx.StrictNamedArgs{
		"entry_ids": ids, "order_ids": orders, "user_ids": users, "kinds": kinds,
		"refund_ids": refunds, "points": points, "event_ids": events,
	}
}

const sqlAwardedTo = `SELECT user_id FROM points_entry WHERE order_id = $1 AND kind = 'award' AND refund_id = ''`

// awardedTo returns the user who got the points of an order, or pgx.ErrNoRows.
func awardedTo(ctx context.Context, tx pgx.Tx, orderID string) (userID string, err error) {
	if err := tx.QueryRow(ctx, sqlAwardedTo, orderID).Scan(&userID); err != nil {
		return "", fmt.Errorf("read award of order %s: %w", orderID, err)
	}
	return userID, nil
}

// sqlBalance has a row for everybody: who has earned nothing has zero.
const sqlBalance = `SELECT coalesce((SELECT balance FROM points_balance WHERE user_id = $1), 0), now()`

func readBalance(ctx context.Context, pool *pgxpool.Pool, userID string) (Balance, error) {
	b := Balance{UserID: userID}
	if err := pool.QueryRow(ctx, sqlBalance, userID).Scan(&b.Points, &b.AsOf); err != nil {
		return Balance{}, fmt.Errorf("read balance: %w", err)
	}
	return b, nil
}

const sqlEntries = `
SELECT entry_id, order_id, user_id, kind, refund_id, points, event_id, booked_at
  FROM points_entry
 WHERE user_id = @user_id AND entry_id < @before
 ORDER BY entry_id DESC
 LIMIT @limit`

// behindAll sorts behind every entry id: "before" it are all entries.
const behindAll = "~"

// readEntries returns a user's entries older than before, newest first.
func readEntries(ctx context.Context, pool *pgxpool.Pool, userID, before string, limit int) ([]Entry, error) {
	rows, err := pool.Query(ctx, sqlEntries, pgx.StrictNamedArgs{"user_id": userID, "before": before, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	return entries, nil
}
