package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
)

// found is what the databases hold about the orders of a journal, each part
// read from the service that owns it.
type found struct {
	orders     map[string]orderRow
	facts      map[string]map[string]int // by order and kind: rows of the outbox
	exceptions map[string]int            // by order: announcements that wait for a person
	undone     map[string]int            // by order: follow-ups that are not done
	entries    map[string]entryRow       // by order
	tasks      map[string]taskRow        // by order
	documents  map[string]documentRow    // by order

	unpublished int      // rows of all outboxes that wait for too long or are held
	failures    int      // dead letters of all consumers that are open
	badBalances int      // balances that are not the sum of their entries
	strays      []string // rows that no order accounts for, whoever placed it
}

type orderRow struct {
	State                            string
	Version, Points, PointsTakenBack int64
}

type entryRow struct {
	Awards, Reversals int
	Points            int64
}

type taskRow struct{ Tasks, Sent int }

type documentRow struct {
	State             string
	Version, Refunded int64
}

// Each statement takes the order ids of the journal.
const (
	sqlFoundOrders = `
SELECT order_id, state, version, points, points_taken_back FROM orders WHERE order_id = ANY($1)`
	sqlFoundFacts = `
SELECT aggregate_id, kind, count(*) FROM message_outbox WHERE aggregate_id = ANY($1) GROUP BY aggregate_id, kind`
	sqlFoundExceptions = `
SELECT order_id, count(*) FROM payment_exception WHERE state = 'open' AND order_id = ANY($1) GROUP BY order_id`
	sqlFoundUndone = `
SELECT order_id, count(*) FROM follow_up WHERE state <> 'done' AND order_id = ANY($1) GROUP BY order_id`
	sqlFoundEntries = `
SELECT order_id, count(*) FILTER (WHERE kind = 'award'), count(*) FILTER (WHERE kind = 'reversal'), sum(points)::bigint
  FROM points_entry WHERE order_id = ANY($1) GROUP BY order_id`
	sqlFoundTasks = `
SELECT order_id, count(*), count(*) FILTER (WHERE state = 'sent') FROM delivery_task WHERE order_id = ANY($1) GROUP BY order_id`
	sqlFoundDocuments = `
SELECT order_id, state, version, refunded_amount FROM order_document
 WHERE slot = (SELECT live_slot FROM search_index) AND order_id = ANY($1)`
)

// These look at the whole database: what is wrong there is wrong whoever
// placed the order.
const (
	sqlUnpublished = `
SELECT (SELECT count(*) FROM message_outbox_pending WHERE available_at <= now() - make_interval(secs => $1)) + (SELECT count(*) FROM message_outbox_held)`
	sqlFailures    = `SELECT count(*) FROM message_failure WHERE state NOT IN ('resolved', 'discarded')`
	sqlBadBalances = `
SELECT count(*)
  FROM points_balance b
  FULL JOIN (SELECT user_id, sum(points) AS points FROM points_entry GROUP BY user_id) e ON e.user_id = b.user_id
 WHERE b.balance IS DISTINCT FROM e.points`
)

// sessions are those of all databases, by service.
type sessions map[string]*pgx.Conn

func (s Site) openSessions(ctx context.Context) (sessions, error) {
	open := sessions{}
	for _, service := range services {
		conn, err := pgx.Connect(ctx, s.Databases[service])
		if err != nil {
			open.close()
			return nil, fmt.Errorf("look into %s: %w", Database(service), err)
		}
		open[service] = conn
	}
	return open, nil
}

func (s sessions) close() {
	for _, conn := range s {
		_ = conn.Close(context.Background())
	}
}

// look reads everything that the databases hold about these orders. lag is how
// long an event may wait for a relay.
func (s sessions) look(ctx context.Context, orderIDs []string, lag time.Duration) (f *found, err error) {
	f = &found{facts: map[string]map[string]int{}}
	if f.orders, err = collect(ctx, s["order"], sqlFoundOrders, orderIDs, func(r *orderRow) []any {
		return []any{&r.State, &r.Version, &r.Points, &r.PointsTakenBack}
	}); err != nil {
		return nil, err
	}
	if f.exceptions, err = collect(ctx, s["order"], sqlFoundExceptions, orderIDs, func(n *int) []any { return []any{n} }); err != nil {
		return nil, err
	}
	if f.undone, err = collect(ctx, s["order"], sqlFoundUndone, orderIDs, func(n *int) []any { return []any{n} }); err != nil {
		return nil, err
	}
	if f.entries, err = collect(ctx, s["points"], sqlFoundEntries, orderIDs, func(r *entryRow) []any {
		return []any{&r.Awards, &r.Reversals, &r.Points}
	}); err != nil {
		return nil, err
	}
	if f.tasks, err = collect(ctx, s["notify"], sqlFoundTasks, orderIDs, func(r *taskRow) []any { return []any{&r.Tasks, &r.Sent} }); err != nil {
		return nil, err
	}
	if f.documents, err = collect(ctx, s["search"], sqlFoundDocuments, orderIDs, func(r *documentRow) []any {
		return []any{&r.State, &r.Version, &r.Refunded}
	}); err != nil {
		return nil, err
	}
	if err := f.lookAtFacts(ctx, s["order"], orderIDs); err != nil {
		return nil, err
	}
	return f, f.lookAtWhole(ctx, s, lag)
}

// collect reads rows whose first column is an order id.
func collect[R any](ctx context.Context, conn *pgx.Conn, sql string, orderIDs []string, columns func(*R) []any) (map[string]R, error) {
	rows, err := conn.Query(ctx, sql, orderIDs)
	if err != nil {
		return nil, fmt.Errorf("look into %s: %w", conn.Config().Database, err)
	}
	byOrder := map[string]R{}
	var id string
	var row R
	if _, err := pgx.ForEachRow(rows, append([]any{&id}, columns(&row)...), func() error {
		byOrder[id] = row
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look into %s: %w", conn.Config().Database, err)
	}
	return byOrder, nil
}

func (f *found) lookAtFacts(ctx context.Context, conn *pgx.Conn, orderIDs []string) error {
	rows, err := conn.Query(ctx, sqlFoundFacts, orderIDs)
	if err != nil {
		return fmt.Errorf("look into the outbox of orders: %w", err)
	}
	var id, kind string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &kind, &n}, func() error {
		if f.facts[id] == nil {
			f.facts[id] = map[string]int{}
		}
		f.facts[id][kind] = n
		return nil
	}); err != nil {
		return fmt.Errorf("look into the outbox of orders: %w", err)
	}
	return nil
}

func (f *found) lookAtWhole(ctx context.Context, s sessions, lag time.Duration) error {
	for service, conn := range s {
		var unpublished, failures int
		if err := conn.QueryRow(ctx, sqlUnpublished, lag.Seconds()).Scan(&unpublished); err != nil {
			return fmt.Errorf("look into %s: %w", Database(service), err)
		}
		if err := conn.QueryRow(ctx, sqlFailures).Scan(&failures); err != nil {
			return fmt.Errorf("look into %s: %w", Database(service), err)
		}
		f.unpublished += unpublished
		f.failures += failures
	}
	if err := s["points"].QueryRow(ctx, sqlBadBalances).Scan(&f.badBalances); err != nil {
		return fmt.Errorf("look into the balances: %w", err)
	}
	return nil
}

// readMails returns the Message-IDs that the mail sink has for each order, one
// for each mail.
func readMails(ctx context.Context, simURL string) (byOrder map[string][]string, err error) {
	const page = 1000
	byOrder = map[string][]string{}
	for offset := 0; ; offset += page {
		var got struct {
			Mails []struct {
				MessageID string   `json:"message_id"`
				Orders    []string `json:"orders"`
			} `json:"mails"`
		}
		if err := getJSON(ctx, fmt.Sprintf("%s/mails?offset=%d&limit=%d", simURL, offset, page), &got); err != nil {
			return nil, fmt.Errorf("read the mails: %w", err)
		}
		for _, mail := range got.Mails {
			for _, order := range mail.Orders {
				byOrder[order] = append(byOrder[order], mail.MessageID)
			}
		}
		if len(got.Mails) < page {
			return byOrder, nil
		}
	}
}

func getJSON(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}
