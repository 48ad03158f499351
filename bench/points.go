package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/services/points"
)

// The consumer: a stream full of paid orders becomes inbox rows, ledger
// entries, balances and PointsAwarded events, once each. Everyone here writes
// exactly these four.

func (s *stand) pointsGroup() group {
	return group{title: "points", share: 9, cells: []cell{
		{name: "points/batch@always", what: "the points service, batch handler, evenly spread", run: s.pointsService(spreadUsers)},
		{name: "points/batch-hot@always", what: "the points service, 80 % of the events for one user", run: s.pointsService(hotUser)},
		{name: "points/handler@always", what: "the consumer with a handler for each event, grouped commits", run: s.pointsHandler},
		{name: "points/each-16@always", what: "no consumer: a transaction an event, five round trips, 16 workers", run: s.pointsEach},
		{name: "points/sql-loop", what: "no messaging: the set-based SQL in a loop, 1000 a transaction", run: s.pointsLoop},
	}}
}

// pointsService measures cmd/points. It is ready and has asked for messages
// before the clock starts: the durable is paused until then. A server that is
// told to go on takes up to some seconds to do so, which is no work of anybody's.
func (s *stand) pointsService(users pattern) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		w, err := s.newWork(ctx, s.sizing.events, users)
		if err != nil {
			return nil, err
		}
		if err := s.always.preload(ctx, w.messages, points.Subscriptions()...); err != nil {
			return nil, err
		}
		if _, err := s.always.js.PauseConsumer(ctx, natsbroker.DefaultStream, awarder, time.Now().Add(time.Hour)); err != nil {
			return nil, fmt.Errorf("pause the durable: %w", err)
		}
		db, drop, err := s.newDatabase(ctx, "points")
		if err != nil {
			return nil, err
		}
		defer drop()
		pool, err := db.open(ctx, 1)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		service, err := s.startService(ctx, "points", "points", "HTTP_ADDR=127.0.0.1:0", "DATABASE_URL="+db.dsn, "NATS_URL="+s.always.url)
		if service != nil {
			defer service.stop()
		}
		if err != nil {
			return nil, err
		}
		if err := errors.Join(s.always.awaitPull(ctx, awarder), s.checkpoint(ctx)); err != nil {
			return nil, err
		}
		m, err := s.start(ctx, service)
		if err != nil {
			return nil, err
		}
		if _, err := s.always.js.ResumeConsumer(ctx, natsbroker.DefaultStream, awarder); err != nil {
			return nil, fmt.Errorf("resume the durable: %w", err)
		}
		if err := s.always.awaitDelivery(ctx, awarder); err != nil {
			return nil, err
		}
		m.restart()
		return s.finishPoints(ctx, m, pool, len(w.messages))
	}
}

// finishPoints waits for the durable to be empty and checks every effect.
func (s *stand) finishPoints(ctx context.Context, m *meter, pool *pgxpool.Pool, n int) (Reading, error) {
	if err := s.always.awaitConsumed(ctx, awarder); err != nil {
		return nil, err
	}
	r, err := m.stop(ctx, n)
	return r, errors.Join(err, checkPoints(ctx, pool, n))
}

// checkPoints makes sure that n events have their four rows each, and that the
// balances are the sum of the ledger.
func checkPoints(ctx context.Context, pool *pgxpool.Pool, n int) error {
	complete, err := completeOf(ctx, pool, `
		SELECT count(*) FROM points_entry e
		  JOIN message_inbox i ON i.event_id = e.event_id AND i.consumer = 'points-awarder'
		  JOIN message_outbox o ON o.aggregate_id = e.entry_id
		  JOIN message_outbox_pending p ON p.event_id = o.event_id`)
	if err != nil {
		return err
	}
	off, err := single(ctx, pool, `SELECT abs((SELECT sum(points) FROM points_entry) - (SELECT sum(balance) FROM points_balance))::bigint`)
	if err != nil {
		return err
	}
	if int(complete) != n || off != 0 {
		return fmt.Errorf("%w: %d of %d events have all their rows, and the balances are %d points off", errCheated, complete, n, off)
	}
	return nil
}

// booking is one award with what is written about it.
type booking struct {
	entryID string
	eventID uuid.UUID
	orderID string
	userID  string
	points  int64
}

func newBooking(eventID uuid.UUID, paid orderPaid) (booking, error) {
	id, err := uuid.NewV7()
	return booking{"pte_" + hex.EncodeToString(id[:]), eventID, paid.OrderID, paid.UserID, paid.PointsDelta}, err
}

// awarded drafts the event that follows from a booking.
func (b booking) awarded() messaging.Draft {
	return messaging.New(b.entryID, 1, points.PointsAwarded{EntryID: b.entryID, OrderID: b.orderID, UserID: b.userID,
		Points: b.points, AwardedAt: time.Now().UTC().Truncate(time.Microsecond)})
}

// sqlBookOne is what a service that handles one event at a time would write.
const sqlBookOne = `
WITH entry AS (
	INSERT INTO points_entry (entry_id, order_id, user_id, kind, points, event_id) VALUES ($1, $2, $3, 'award', $4, $5)
	ON CONFLICT ON CONSTRAINT points_entry_once DO NOTHING
	RETURNING user_id, points
)
INSERT INTO points_balance (user_id, balance) SELECT user_id, points FROM entry
ON CONFLICT (user_id) DO UPDATE SET balance = points_balance.balance + excluded.balance, updated_at = now()`

func (b booking) book(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlBookOne, b.entryID, b.orderID, b.userID, b.points, b.eventID); err != nil {
		return fmt.Errorf("book %s: %w", b.entryID, err)
	}
	return nil
}

// pointsHandler measures the consumer with the simple form of a handler: the
// events of a group still share a commit, and each has its own statements.
func (s *stand) pointsHandler(ctx context.Context) (Reading, error) {
	n := min(10*s.slow, s.sizing.events)
	db, drop, err := s.newDatabase(ctx, "points")
	if err != nil {
		return nil, err
	}
	defer drop()
	pool, err := db.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	w, err := s.newWork(ctx, n, spreadUsers)
	if err != nil {
		return nil, err
	}
	if err := s.always.preload(ctx, w.messages, onlyPaid); err != nil {
		return nil, err
	}
	conn, err := s.always.connectProduct(ctx, "points")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	consumer, err := handlerConsumer(pool, conn)
	if err != nil {
		return nil, err
	}
	if err := s.checkpoint(ctx); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	m, err := s.start(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	go func() { done <- consumer.Run(running) }()
	r, err := s.finishPoints(ctx, m, pool, n)
	stop()
	return r, errors.Join(err, <-done)
}

// handlerConsumer books each event by itself.
func handlerConsumer(pool *pgxpool.Pool, sub messaging.Subscriber) (*messaging.Consumer, error) {
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "points"})
	if err != nil {
		return nil, err
	}
	consumer := messaging.NewConsumer(awarder, pool, sub, messaging.ConsumerConfig{Logger: quiet()})
	messaging.Handle(consumer, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[orderPaid]) error {
		b, err := newBooking(ev.EventID, ev.Data)
		if err != nil {
			return err
		}
		if err := b.book(ctx, tx); err != nil {
			return err
		}
		return outbox.Add(ctx, tx, b.awarded().CausedBy(ev.Meta))
	})
	return consumer, nil
}

// onlyPaid is the durable of those consumers that handle one kind.
var onlyPaid = messaging.Subscription{Durable: awarder, Kinds: []messaging.Kind{orderPaid{}.Kind()}}
