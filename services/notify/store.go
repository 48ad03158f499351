package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
)

const sqlInsertTask = `
INSERT INTO delivery_task (notification_id, order_id, user_id, template, amount, currency, exponent, paid_at, event_id, correlation_id, tenant, trace_parent)
VALUES (@id, @order_id, @user_id, @template, @amount, @currency, @exponent, @paid_at, @event_id, @correlation_id, @tenant, @trace_parent)
    ON CONFLICT ON CONSTRAINT delivery_task_once DO NOTHING`

// insertTask queues a mail. It reports false if the order has one of its kind.
func insertTask(ctx context.Context, tx pgx.Tx, t Task, cause messaging.Meta) (added bool, err error) {
	tag, err := tx.Exec(ctx, sqlInsertTask, pgx.StrictNamedArgs{
		"id": t.ID, "order_id": t.OrderID, "user_id": t.UserID, "template": t.Template,
		"amount": t.Total.Amount, "currency": t.Total.Currency, "exponent": t.Total.Exponent, "paid_at": t.PaidAt,
		"event_id": cause.EventID, "correlation_id": cause.CorrelationID, "tenant": cause.Tenant, "trace_parent": cause.TraceParent,
	})
	if err != nil {
		return false, fmt.Errorf("queue mail for order %s: %w", t.OrderID, err)
	}
	return tag.RowsAffected() == 1, nil
}

// A claimed task may be sent by this process, and nobody else, until its lease
// ends by the database's clock.
type claimed struct {
	Task
	contact   Contact        // without an address if none is known
	cause     messaging.Meta // what is stated about the mail refers to it
	number    int64          // of the claim: a later one takes the task away
	abandoned bool           // the sender before did not say how it ended
}

// sqlClaim takes tasks whose time has come, and those whose sender has let its
// lease run out. It is one short transaction: no lock is held while a mail is
// sent. SKIP LOCKED keeps senders out of each other's way, and the common
// table expression, unlike IN (SELECT … LIMIT), never takes more than its limit.
const sqlClaim = `
WITH due AS MATERIALIZED (
	SELECT notification_id, user_id, state
	  FROM delivery_task
	 WHERE state IN ('queued', 'sending') AND due_at <= now()
	 ORDER BY due_at
	 LIMIT @limit
	   FOR UPDATE SKIP LOCKED
)
UPDATE delivery_task t
   SET state = 'sending', claim = t.claim + 1, due_at = now() + make_interval(secs => @lease), updated_at = now()
  FROM due LEFT JOIN contact c ON c.user_id = due.user_id
 WHERE t.notification_id = due.notification_id
RETURNING t.notification_id, t.order_id, t.user_id, t.template, t.amount, t.currency, t.exponent, t.paid_at,
          t.code, t.attempts, t.unknowns, t.due_at, t.created_at, t.event_id, t.correlation_id, t.tenant, t.trace_parent,
          coalesce(c.email, ''), coalesce(c.locale, ''), t.claim, due.state = 'sending'`

func claimTasks(ctx context.Context, pool *pgxpool.Pool, limit int, lease time.Duration) ([]claimed, error) {
	rows, err := pool.Query(ctx, sqlClaim, pgx.StrictNamedArgs{"limit": limit, "lease": lease.Seconds()})
	if err != nil {
		return nil, fmt.Errorf("claim mails: %w", err)
	}
	tasks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c claimed, err error) {
		err = row.Scan(&c.ID, &c.OrderID, &c.UserID, &c.Template, &c.Total.Amount, &c.Total.Currency, &c.Total.Exponent, &c.PaidAt,
			&c.Code, &c.Attempts, &c.Unknowns, &c.DueAt, &c.CreatedAt, &c.cause.EventID, &c.cause.CorrelationID, &c.cause.Tenant, &c.cause.TraceParent,
			&c.contact.Email, &c.contact.Locale, &c.number, &c.abandoned)
		c.State, c.contact.UserID = Sending, c.UserID
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim mails: %w", err)
	}
	return tasks, nil
}

// sqlSettle writes down what an attempt has made of a task. Only the holder of
// the newest claim may, with one exception: that the server has the mail is a
// fact, whoever learns it and however late.
const sqlSettle = `
UPDATE delivery_task
   SET state = @state::text, code = @code, reply = @reply, attempts = @attempts, unknowns = @unknowns,
       due_at = now() + make_interval(secs => @delay), version = version + @stated, updated_at = now()
 WHERE notification_id = @id
   AND (state = 'sending' AND claim = @claim OR @state::text = 'sent' AND state <> 'sent')
RETURNING version, updated_at`

// errTaken: another sender has the task, or it is settled already.
var errTaken = errors.New("the task is no longer this sender's")

// settleTask returns the task's version, for the event that states the end, and
// when it was written.
func settleTask(ctx context.Context, tx pgx.Tx, c claimed, s Step, reply string) (version int64, at time.Time, err error) {
	stated := 0
	if s.State.Over() {
		stated = 1
	}
	err = tx.QueryRow(ctx, sqlSettle, pgx.StrictNamedArgs{
		"id": c.ID, "claim": c.number, "state": s.State, "code": s.Code, "reply": reply,
		"attempts": s.Attempts, "unknowns": s.Unknowns, "delay": s.Delay.Seconds(), "stated": stated,
	}).Scan(&version, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errTaken
	}
	if err != nil {
		return 0, at, fmt.Errorf("settle mail %s: %w", c.ID, err)
	}
	return version, at, nil
}

// sqlLockUser makes those wait for each other who read that there is no
// contact and who write one: a row that is not there cannot be locked. Without
// it a contact could arrive between a sender's look and its "failed", and
// neither side would see the other.
const sqlLockUser = `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`

func lockUser(ctx context.Context, tx pgx.Tx, userID string) error {
	if _, err := tx.Exec(ctx, sqlLockUser, userID); err != nil {
		return fmt.Errorf("lock user: %w", err)
	}
	return nil
}

const sqlPutContact = `
INSERT INTO contact (user_id, email, locale) VALUES ($1, $2, $3)
    ON CONFLICT (user_id) DO UPDATE SET email = excluded.email, locale = excluded.locale, updated_at = now()`

func putContact(ctx context.Context, tx pgx.Tx, c Contact) error {
	if _, err := tx.Exec(ctx, sqlPutContact, c.UserID, c.Email, c.Locale); err != nil {
		return fmt.Errorf("write contact: %w", err)
	}
	return nil
}

// sqlRevive leaves old mails as they are. Who writes down an address after a
// year must not get the confirmations of all that he has bought since, each of
// which says that an order is being prepared.
const sqlRevive = `
UPDATE delivery_task SET state = 'queued', due_at = now(), updated_at = now(), attempts = 0
 WHERE user_id = $1 AND state = 'failed' AND (code = 'no_contact' OR $2 AND code IN ('rejected', 'gave_up'))
   AND created_at > now() - interval '7 days'`

// revive queues again what failed for want of an address, and, if the address is
// another one now, what was refused, or put off too often, under the old one. At
// the new one it has all of its attempts.
func revive(ctx context.Context, tx pgx.Tx, userID string, moved bool) (n int64, err error) {
	tag, err := tx.Exec(ctx, sqlRevive, userID, moved)
	if err != nil {
		return 0, fmt.Errorf("queue mails again: %w", err)
	}
	return tag.RowsAffected(), nil
}

const sqlContact = `SELECT user_id, email, locale FROM contact WHERE user_id = $1`

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// readContact returns errNoContact if there is none.
func readContact(ctx context.Context, db querier, userID string) (Contact, error) {
	rows, err := db.Query(ctx, sqlContact, userID)
	if err != nil {
		return Contact{}, fmt.Errorf("read contact: %w", err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Contact])
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoContact
	}
	if err != nil {
		return Contact{}, fmt.Errorf("read contact: %w", err)
	}
	return c, nil
}

const sqlNotifications = `
SELECT notification_id, order_id, user_id, template, amount, currency, exponent, paid_at,
       state, code, reply, attempts, unknowns, due_at, created_at, updated_at
  FROM delivery_task
 WHERE user_id = @user_id AND notification_id < @before
 ORDER BY notification_id DESC
 LIMIT @limit`

// behindAll sorts behind every notification id: "before" it are all of them.
const behindAll = "~"

// readNotifications returns a user's mails older than before, newest first.
func readNotifications(ctx context.Context, pool *pgxpool.Pool, userID, before string, limit int) ([]Task, error) {
	rows, err := pool.Query(ctx, sqlNotifications, pgx.StrictNamedArgs{"user_id": userID, "before": before, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	tasks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Task, err error) {
		err = row.Scan(&t.ID, &t.OrderID, &t.UserID, &t.Template, &t.Total.Amount, &t.Total.Currency, &t.Total.Exponent, &t.PaidAt,
			&t.State, &t.Code, &t.Reply, &t.Attempts, &t.Unknowns, &t.DueAt, &t.CreatedAt, &t.UpdatedAt)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	return tasks, nil
}
