package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
)

// A work is a list of events, ready to be staged, as every candidate gets it:
// the same bytes under the same ids.
type work struct {
	messages   []messaging.Message
	places     map[uuid.UUID]place // of each event within its aggregate
	statements []statement         // what the outbox sends to stage them, a thousand at a time
	meanBytes  int
}

type place struct {
	aggregate string
	version   int64
}

// A statement is a call as it was made.
type statement struct {
	sql  string
	args []any
}

// orderPaid is the event, by its contract and with what an order of two lines
// would say besides: contracts may grow, and 600 to 900 bytes are the rule.
type orderPaid struct {
	OrderID     string    `json:"order_id"`
	UserID      string    `json:"user_id"`
	PaymentID   string    `json:"payment_id"`
	Total       money     `json:"total"`
	PointsDelta int64     `json:"points_delta"`
	PaidAt      time.Time `json:"paid_at"`
	Items       []line    `json:"items"`
}

type money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Exponent int    `json:"exponent"`
}

type line struct {
	SKU    string `json:"sku"`
	Title  string `json:"title"`
	Count  int    `json:"quantity"`
	Amount int64  `json:"unit_amount"`
}

func (orderPaid) Kind() messaging.Kind {
	return messaging.Kind{Context: "order", Type: "OrderPaid", Version: 1, Aggregate: "order"}
}

// paidBy drafts the event of an order.
func paidBy(orderID string, version int64, user string, n int) messaging.Draft {
	return messaging.New(orderID, version, orderPaid{
		OrderID: orderID, UserID: user, PaymentID: fmt.Sprintf("pay_%012d", n),
		Total: money{12990 + int64(n%1000), "CNY", 2}, PointsDelta: int64(1 + n%50), PaidAt: time.Now().UTC().Truncate(time.Microsecond),
		Items: []line{
			{"OUT-PACK-38UL", "Ultralight Hiking Backpack 38 L", 1, 9990},
			{"TEA-LONGJING-100", "West Lake Longjing Green Tea 100 g", 1, 3000 + int64(n%1000)},
		},
	})
}

func orderID(n int) string { return fmt.Sprintf("ord_%032x", n) }

// A pattern makes the n-th event of a work.
type pattern func(n int) messaging.Draft

// perAggregate is how many events an aggregate of a burst has.
const perAggregate = 5

// burst has five events for each order, fifty events apart: what has been
// created is paid, packed and sent within a short time.
func burst(n int) messaging.Draft {
	block, at := n/(50*perAggregate), n%(50*perAggregate)
	return paidBy(orderID(block*50+at%50), int64(at/50+1), fmt.Sprintf("u_%d", n%5000), n)
}

// spreadUsers has one event for each order, and five thousand customers.
func spreadUsers(n int) messaging.Draft {
	return paidBy(orderID(n), 1, fmt.Sprintf("u_%d", n*7919%5000), n)
}

// hotUser is the same with four of five events for one customer.
func hotUser(n int) messaging.Draft {
	if n%5 != 0 {
		return paidBy(orderID(n), 1, "u_hot", n)
	}
	return spreadUsers(n)
}

// stageBatch is how many events are staged by one statement.
const stageBatch = 1000

// newWork drafts n events and finds out, by staging them once, what their
// messages are.
func (s *stand) newWork(ctx context.Context, n int, next pattern) (*work, error) {
	w, err := draftWork(ctx, n, next)
	if err != nil {
		return nil, err
	}
	db, drop, err := s.newDatabase(ctx, "messaging")
	if err != nil {
		return nil, err
	}
	defer drop()
	pool, err := db.open(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := w.stage(ctx, pool); err != nil {
		return nil, err
	}
	return w, w.readBack(ctx, pool)
}

// draftWork drafts n events through the public outbox. A stand-in for the
// transaction keeps the statements, so that the clock of no candidate runs
// while JSON is made.
func draftWork(ctx context.Context, n int, next pattern) (*work, error) {
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order"})
	if err != nil {
		return nil, err
	}
	tx := &recordingTx{}
	for first := 0; first < n; first += stageBatch {
		drafts := make([]messaging.Draft, 0, stageBatch)
		for i := first; i < min(first+stageBatch, n); i++ {
			drafts = append(drafts, next(i))
		}
		if err := outbox.Add(ctx, tx, drafts...); err != nil {
			return nil, err
		}
	}
	return &work{statements: tx.statements}, nil
}

// recordingTx keeps what would be executed.
type recordingTx struct {
	pgx.Tx
	statements []statement
}

func (t *recordingTx) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	t.statements = append(t.statements, statement{sql, args})
	return pgconn.CommandTag{}, nil
}

const sqlReadStaged = `
SELECT event_id, aggregate_type, aggregate_id, aggregate_version, subject, payload FROM message_outbox ORDER BY id`

func (w *work) readBack(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, sqlReadStaged)
	if err != nil {
		return fmt.Errorf("read staged events: %w", err)
	}
	w.places = map[uuid.UUID]place{}
	var m messaging.Message
	var kind string
	var at place
	total := 0
	_, err = pgx.ForEachRow(rows, []any{&m.ID, &kind, &at.aggregate, &at.version, &m.Subject, &m.Data}, func() error {
		m.Key = kind + "/" + at.aggregate
		w.messages = append(w.messages, messaging.Message{ID: m.ID, Key: m.Key, Subject: m.Subject, Data: append([]byte(nil), m.Data...)})
		w.places[m.ID] = at
		total += len(m.Data)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read staged events: %w", err)
	}
	w.meanBytes = total / max(len(w.messages), 1)
	if w.meanBytes < 600 || w.meanBytes > 900 {
		return fmt.Errorf("the events have %d bytes on average, not 600 to 900", w.meanBytes)
	}
	return nil
}

// An execer is a pool or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// stage runs the statements: on a pool each is a transaction, as a service
// that stages in batches would commit them.
func (w *work) stage(ctx context.Context, db execer) error {
	for _, st := range w.statements {
		if _, err := db.Exec(ctx, st.sql, st.args...); err != nil {
			return fmt.Errorf("stage events: %w", err)
		}
	}
	return nil
}
