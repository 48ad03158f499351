package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/postgres"
)

// A mail that was sent and never acknowledged, as often as policy repeats it,
// is left to a person: only the mail server's log tells whether it arrived. A
// mail that was given up is no doubt and on no list, but the person who has
// mended what stood in its way may have it sent in the same way.

func (d *Delivery) doubts(operators *pgxpool.Pool) opsapi.DoubtDesk {
	return opsapi.DoubtDesk{
		List: func(ctx context.Context, after string, limit int) ([]opsapi.Doubt, error) {
			return listDoubts(ctx, operators, after, limit)
		},
		Settle: func(ctx context.Context, id string, happened bool, who messaging.Actor) error {
			return d.settleDoubt(ctx, operators, id, happened, who)
		},
	}
}

const sqlDoubts = `
SELECT notification_id, order_id, 'mail', code, updated_at FROM delivery_task
 WHERE state = 'unknown' AND notification_id > $1 ORDER BY notification_id LIMIT $2`

func listDoubts(ctx context.Context, pool *pgxpool.Pool, after string, limit int) ([]opsapi.Doubt, error) {
	rows, err := pool.Query(ctx, sqlDoubts, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list mails of unknown outcome: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[opsapi.Doubt])
}

// settleDoubt makes a mail of unknown outcome a sent one, and states that, or
// queues it once more, with its old Message-ID: whoever has it can tell that the
// second is the same. A failed mail can only be queued.
func (d *Delivery) settleDoubt(ctx context.Context, pool *pgxpool.Pool, id string, happened bool, who messaging.Actor) error {
	err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		c, version, at, was, err := endDoubt(ctx, tx, id, happened)
		if err != nil {
			return err
		}
		after := map[string]any{"outcome": opsapi.OutcomeAgain}
		if happened {
			after["outcome"] = opsapi.OutcomeHappened
			if err := d.outbox.Add(ctx, tx, d.statement(c, Step{State: Sent}, version, at)); err != nil {
				return err
			}
		} else {
			afterCommit(tx, d.Wake)
		}
		return messaging.RecordAction(ctx, tx, who, "settle", opsapi.DoubtTarget(id), map[string]any{"state": was}, after)
	})
	if err != nil {
		return fmt.Errorf("settle mail %s: %w", id, err)
	}
	return nil
}

// sqlEndDoubt takes the row by its state: of two people who decide at once, one
// finds that there is no doubt any more.
const sqlEndDoubt = `
WITH ended AS (
	SELECT notification_id, state FROM delivery_task
	 WHERE notification_id = @id AND (state = 'unknown' OR state = 'failed' AND NOT @happened)
	   FOR UPDATE
)
UPDATE delivery_task t SET state = CASE WHEN @happened THEN 'sent' ELSE 'queued' END, due_at = now(), updated_at = now(),
	code = CASE WHEN @happened THEN '' ELSE t.code END, attempts = CASE WHEN @happened THEN t.attempts ELSE 0 END,
	version = t.version + CASE WHEN @happened THEN 1 ELSE 0 END
  FROM ended
 WHERE t.notification_id = ended.notification_id
RETURNING t.notification_id, t.order_id, t.user_id, t.template, t.event_id, t.correlation_id, t.tenant, t.version, t.updated_at, ended.state`

func endDoubt(ctx context.Context, tx pgx.Tx, id string, happened bool) (c claimed, version int64, at time.Time, was State, err error) {
	err = tx.QueryRow(ctx, sqlEndDoubt, pgx.NamedArgs{"id": id, "happened": happened}).Scan(&c.ID, &c.OrderID, &c.UserID, &c.Template,
		&c.cause.EventID, &c.cause.CorrelationID, &c.cause.Tenant, &version, &at, &was)
	if errors.Is(err, pgx.ErrNoRows) {
		err = opsapi.ErrNoDoubt
	}
	return c, version, at, was, err
}
