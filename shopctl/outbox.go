package shopctl

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
)

// OutboxSummary shows how far the outboxes are.
type OutboxSummary struct{ Databases }

// Help is printed below the flags.
func (OutboxSummary) Help() string {
	return `The columns:

  pending    committed, waiting for a relay
  backoff    refused by the broker, will be tried again
  behind     waiting for an earlier event of its aggregate
  failed     given up until a person decides
  relays     processes that hold a lease
  published  acknowledged by the broker, with evidence

Example: shopctl outbox summary --database order=postgres://shop_relay@db/shop_order`
}

// One row; every count is exact, and the one over the publications is the only
// one that grows with history.
const sqlOutboxSummary = `
SELECT (SELECT count(*) FROM message_outbox_pending)                                    AS pending,
       (SELECT coalesce(extract(epoch FROM now() - min(available_at)), 0)::float8
          FROM message_outbox_pending)                                                  AS oldest_seconds,
       (SELECT count(*) FROM message_outbox_held WHERE state = 'backoff')               AS backoff,
       (SELECT count(*) FROM message_outbox_held WHERE state = 'behind')                AS behind,
       (SELECT count(*) FROM message_outbox_held WHERE state = 'failed')                AS failed,
       (SELECT count(DISTINCT owner) FROM relay_lease WHERE lease_until > now())        AS relays,
       (SELECT count(*) FROM message_outbox_publication)                                AS published`

// Run prints a line for each database.
func (c OutboxSummary) Run(ctx context.Context, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "database\tpending\toldest\tbackoff\tbehind\tfailed\trelays\tpublished")
	err := c.each(ctx, func(name string, conn *pgx.Conn) error {
		var pending, backoff, behind, failed, relays, published int64
		var oldest float64
		row := conn.QueryRow(ctx, sqlOutboxSummary)
		if err := row.Scan(&pending, &oldest, &backoff, &behind, &failed, &relays, &published); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%d\t%.1f s\t%d\t%d\t%d\t%d\t%d\n", name, pending, oldest, backoff, behind, failed, relays, published)
		return nil
	})
	if flushErr := w.Flush(); err == nil {
		err = flushErr
	}
	return err
}

// OutboxList shows events that have not been published, oldest first.
type OutboxList struct {
	Databases
	State string `enum:"any,pending,backoff,behind,failed" default:"any" help:"Only events in this state: pending, backoff, behind or failed. Defaults to any."`
	Limit int    `default:"50" help:"Most lines for each database. Defaults to 50."`
}

// Help is printed below the flags.
func (OutboxList) Help() string {
	return "Shows ids and reasons, never the data of an event.\n\n" +
		"Example: shopctl outbox list --state failed --database order=postgres://shop_relay@db/shop_order"
}

const sqlOutboxList = `
SELECT q.state, q.event_id::text, o.kind, o.aggregate_id, o.aggregate_version, q.attempts,
       CASE WHEN isfinite(q.available_at) THEN to_char(q.available_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') ELSE 'never' END AS due, q.last_error
  FROM (SELECT 'pending' AS state, id, event_id, attempts, available_at, coalesce(last_error, '') AS last_error FROM message_outbox_pending
        UNION ALL
        SELECT state, id, event_id, attempts, available_at, last_error FROM message_outbox_held) q
  JOIN message_outbox o ON o.event_id = q.event_id
 WHERE $1 IN ('any', q.state)
 ORDER BY q.id
 LIMIT $2`

type unpublished struct {
	State, EventID, Kind, AggregateID string
	Version                           int64
	Attempts                          int
	Due, LastError                    string
}

// Run prints a line for each event.
func (c OutboxList) Run(ctx context.Context, out io.Writer) error {
	if err := atLeastOne("limit", c.Limit); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "database\tstate\tevent\tkind\taggregate\tversion\tattempts\tdue\terror\n"
	shown := 0
	err := c.each(ctx, func(name string, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sqlOutboxList, c.State, c.Limit)
		if err != nil {
			return err
		}
		events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[unpublished])
		if err != nil {
			return err
		}
		for _, e := range events {
			if shown++; shown == 1 {
				fmt.Fprint(w, head)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", name, e.State, e.EventID, e.Kind, e.AggregateID, e.Version,
				e.Attempts, e.Due, oneLine(e.LastError))
		}
		return nil
	})
	if shown == 0 && err == nil {
		fmt.Fprintln(w, nothing)
	}
	if flushErr := w.Flush(); err == nil {
		err = flushErr
	}
	return err
}

// oneLine keeps an error from breaking the table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
