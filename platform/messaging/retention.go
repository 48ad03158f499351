package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/postgres"
)

// RetentionConfig says how long a database keeps what messaging wrote there.
// The zero value works.
type RetentionConfig struct {
	// Outbox is how long published facts and their evidence stay. They are the
	// truth that reconciliation and back-fill go by, so it must exceed the
	// stream's age. Defaults to 90 days.
	Outbox time.Duration

	// Inbox is how long the inbox remembers. What it forgets could be applied
	// a second time, so nothing older may be delivered: neither by the stream
	// nor by a replay. Defaults to 90 days.
	Inbox time.Duration

	// Stream is the age at which the broker drops events; see
	// natsbroker.Topology. It is checked against Inbox. Defaults to 7 days.
	Stream time.Duration

	// Failures is how long payloads of settled failures and of ended replays
	// stay. A replay that nobody has started by then is refused. Defaults to
	// 30 days.
	Failures time.Duration

	// Ahead is how many months of partitions are prepared. Defaults to 12.
	Ahead int
}

// retentionMargin is what the inbox must remember beyond the stream's age: a
// month, because whole months are detached.
const retentionMargin = 31 * 24 * time.Hour

// ErrForgetful: the inbox would forget events that can still be delivered.
var ErrForgetful = errors.New("the inbox must remember for longer than the stream keeps events, by a month at least")

// Check reports settings under which an event could be applied twice, or that
// would erase what was only just settled.
func (c RetentionConfig) Check() error {
	c = c.withDefaults()
	if min(c.Outbox, c.Inbox, c.Stream, c.Failures) < 0 { // it would reach into the future, and spare nothing
		return fmt.Errorf("outbox of %v, inbox of %v, stream of %v, payloads of %v: an age is not negative", c.Outbox, c.Inbox, c.Stream, c.Failures)
	}
	if c.Inbox < c.Stream+retentionMargin {
		return fmt.Errorf("inbox of %v, stream of %v: %w", c.Inbox, c.Stream, ErrForgetful)
	}
	if c.Inbox < c.Outbox {
		return fmt.Errorf("inbox of %v, outbox of %v: an event that can be published again must be remembered: %w", c.Inbox, c.Outbox, ErrForgetful)
	}
	if c.Outbox < c.Stream {
		return fmt.Errorf("outbox of %v is shorter than the stream's %v: what the broker lost could not be published again", c.Outbox, c.Stream)
	}
	return nil
}

func (c RetentionConfig) withDefaults() RetentionConfig {
	const day = 24 * time.Hour
	setDefault(&c.Outbox, 90*day)
	setDefault(&c.Inbox, 90*day)
	setDefault(&c.Stream, 7*day)
	setDefault(&c.Failures, 30*day)
	setDefault(&c.Ahead, 12)
	return c
}

// maxAhead bounds how many months of partitions are prepared: each costs every
// plan a little, and thousands cost the transaction that makes them its time.
const maxAhead = 120

// Prepare makes the partitions of the coming months that do not exist yet, from
// 1 to 120 of them, and returns how many it made. Events of a month without one
// are refused at Add.
func Prepare(ctx context.Context, owner *pgxpool.Pool, months int) (made int, err error) {
	if months < 1 || months > maxAhead {
		return 0, fmt.Errorf("prepare partitions of %d months: between 1 and %d", months, maxAhead)
	}
	if err := owner.QueryRow(ctx, `SELECT message_prepare_partitions($1)`, months).Scan(&made); err != nil {
		return 0, fmt.Errorf("prepare partitions: %w", err)
	}
	return made, nil
}

// A RetentionReport is what one run did.
type RetentionReport struct {
	Prepared  int      // partitions made ahead
	Detached  []string // partitions taken off; they are tables of their own now, to archive or to drop
	Kept      []string // old partitions that had to stay, because something in them is unfinished, or was applied not long ago
	Erased    int      // payloads
	Forgotten int      // rows of the inbox's default partition, which has no month to go by
}

// sqlOldPartitions tells their age by the database's clock. This process may run
// on a machine whose clock is a year ahead: all would be old then.
const sqlOldPartitions = `
SELECT c.relname::text, p.relname::text, m.ends, (clock_timestamp() AT TIME ZONE 'UTC') - m.ends AS age
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
  JOIN pg_class p ON p.oid = i.inhparent
 CROSS JOIN LATERAL (SELECT to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month' AS ends) m
 WHERE p.relname IN ('message_outbox', 'message_outbox_publication', 'message_inbox') AND c.relname ~ '_[0-9]{4}_[0-9]{2}$'
 ORDER BY m.ends, p.relname`

type oldPartition struct {
	Name, Parent string
	Ends         time.Time
	Age          time.Duration // since then; negative while it has not ended
}

// Retain prepares partitions, detaches old ones and erases payloads, once. It
// needs the role that owns the tables; a scheduled job calls it, never a
// service. Nothing is dropped: a detached partition is a table of its own.
//
// A partition of facts stays, however old, while anything pending or held
// points into it: an event that was not published is never put out of reach.
func Retain(ctx context.Context, owner *pgxpool.Pool, cfg RetentionConfig) (RetentionReport, error) {
	var report RetentionReport
	if err := cfg.Check(); err != nil {
		return report, err
	}
	cfg = cfg.withDefaults()
	var err error
	if report.Prepared, err = Prepare(ctx, owner, cfg.Ahead); err != nil {
		return report, err
	}
	rows, err := owner.Query(ctx, sqlOldPartitions)
	if err != nil {
		return report, fmt.Errorf("list partitions: %w", err)
	}
	partitions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[oldPartition])
	if err != nil {
		return report, fmt.Errorf("list partitions: %w", err)
	}
	for _, p := range partitions {
		keep := cfg.Outbox
		if p.Parent == "message_inbox" {
			keep = cfg.Inbox
		}
		if p.Age < keep {
			continue
		}
		recent, err := appliedRecently(ctx, owner, p, cfg)
		if err != nil {
			return report, err
		}
		if recent {
			report.Kept = append(report.Kept, p.Name)
			continue
		}
		detached, err := detach(ctx, owner, p)
		switch {
		case err != nil:
			return report, fmt.Errorf("detach %s: %w", p.Name, err)
		case detached:
			report.Detached = append(report.Detached, p.Name)
		default:
			report.Kept = append(report.Kept, p.Name)
		}
	}
	return report, retainRows(ctx, owner, cfg, &report)
}

const sqlAppliedSince = `SELECT EXISTS (SELECT FROM %s WHERE processed_at > clock_timestamp() - $1::interval)`

// appliedRecently reports whether an inbox partition remembers something that
// was applied so lately that it can still be delivered again. Partitions go by
// the age of event ids, and an event may come late: held in an outbox for
// months, or replayed. What is applied between this look and the detachment is
// an event of a closed month, delivered at that moment; nothing else is missed.
func appliedRecently(ctx context.Context, owner *pgxpool.Pool, p oldPartition, cfg RetentionConfig) (recent bool, err error) {
	if p.Parent != "message_inbox" {
		return false, nil
	}
	sql := fmt.Sprintf(sqlAppliedSince, pgx.Identifier{p.Name}.Sanitize())
	if err := owner.QueryRow(ctx, sql, cfg.Stream+retentionMargin).Scan(&recent); err != nil {
		return false, fmt.Errorf("look into %s: %w", p.Name, err)
	}
	return recent, nil
}

const sqlTableThere = `SELECT to_regclass($1) IS NOT NULL`

const sqlUnfinishedIn = `
SELECT EXISTS (SELECT FROM message_outbox_pending q JOIN %[1]s o ON o.event_id = q.event_id)
    OR EXISTS (SELECT FROM message_outbox_held h JOIN %[1]s o ON o.event_id = h.event_id)`

// detach takes one partition off, in one short transaction: it locks the
// parent, looks whether anything unfinished points into the partition, and
// gives up rather than make writers wait.
func detach(ctx context.Context, owner *pgxpool.Pool, p oldPartition) (detached bool, err error) {
	name, parent := pgx.Identifier{p.Name}.Sanitize(), pgx.Identifier{p.Parent}.Sanitize()
	err = postgres.InTx(ctx, owner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2s'`); err != nil {
			return err
		}
		if p.Parent != "message_inbox" {
			// Nothing may become unfinished between the look and the detachment.
			if _, err := tx.Exec(ctx, `LOCK TABLE message_outbox_pending, message_outbox_held IN SHARE ROW EXCLUSIVE MODE`); err != nil {
				return err
			}
			facts := "message_outbox" + p.Name[len(p.Name)-8:]
			if unfinished, err := unfinishedIn(ctx, tx, facts); err != nil || unfinished {
				return err
			}
		} else if _, err := tx.Exec(ctx, `UPDATE message_horizon SET inbox_since = greatest(inbox_since, $1)`, p.Ends); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `ALTER TABLE `+parent+` DETACH PARTITION `+name); err != nil {
			return err
		}
		detached = true
		return nil
	})
	return detached, err
}

// unfinishedIn reports whether anything pending or held points into a partition
// of facts. Nothing does if a run before this one was interrupted after it took
// the facts off, and somebody has dropped them since: their evidence has to
// follow all the same.
func unfinishedIn(ctx context.Context, tx pgx.Tx, facts string) (unfinished bool, err error) {
	var there bool
	if err := tx.QueryRow(ctx, sqlTableThere, facts).Scan(&there); err != nil || !there {
		return false, err
	}
	err = tx.QueryRow(ctx, fmt.Sprintf(sqlUnfinishedIn, pgx.Identifier{facts}.Sanitize())).Scan(&unfinished)
	return unfinished, err
}
