package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
)

// The same effects without this project's consumer: as most services are
// written, and as fast as SQL alone can be.

const eachWorkers = 16

const sqlInboxOne = `
INSERT INTO message_inbox (consumer, event_id, aggregate_id) VALUES ('points-awarder', $1, $2) ON CONFLICT DO NOTHING`

// pointsEach has a transaction for each event: begin, inbox, booking, outbox,
// commit; then the acknowledgement. Sixteen workers share one subscription.
func (s *stand) pointsEach(ctx context.Context) (Reading, error) {
	db, drop, err := s.newDatabase(ctx, "points")
	if err != nil {
		return nil, err
	}
	defer drop()
	pool, err := db.open(ctx, eachWorkers)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	w, err := s.newWork(ctx, s.slow, spreadUsers)
	if err != nil {
		return nil, err
	}
	if err := s.always.preload(ctx, w.messages, onlyPaid); err != nil {
		return nil, err
	}
	consumer, err := s.always.js.Consumer(ctx, natsbroker.DefaultStream, awarder)
	if err != nil {
		return nil, err
	}
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "points"})
	if err != nil {
		return nil, err
	}
	if err := s.checkpoint(ctx); err != nil {
		return nil, err
	}
	m, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := consumeEach(ctx, consumer, len(w.messages), func(ctx context.Context, msg jetstream.Msg) error {
		return awardOne(ctx, pool, outbox, msg)
	}); err != nil {
		return nil, err
	}
	return s.finishPoints(ctx, m, pool, len(w.messages))
}

// consumeEach hands n messages to the workers, with some fetched ahead.
func consumeEach(ctx context.Context, consumer jetstream.Consumer, n int, handle func(context.Context, jetstream.Msg) error) error {
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	defer messages.Stop()
	g, ctx := errgroup.WithContext(ctx)
	work := make(chan jetstream.Msg)
	g.Go(func() error {
		defer close(work)
		for range n {
			msg, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				return fmt.Errorf("pull: %w", err)
			}
			select {
			case work <- msg:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range eachWorkers {
		g.Go(func() error {
			for msg := range work {
				if err := handle(ctx, msg); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func awardOne(ctx context.Context, pool *pgxpool.Pool, outbox *messaging.Outbox, msg jetstream.Msg) error {
	var env messaging.Envelope
	var paid orderPaid
	if err := errors.Join(json.Unmarshal(msg.Data(), &env), json.Unmarshal(env.Data, &paid)); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlInboxOne, env.EventID, env.AggregateID)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		b, err := newBooking(env.EventID, paid)
		if err != nil {
			return err
		}
		if err := b.book(ctx, tx); err != nil {
			return err
		}
		return outbox.Add(ctx, tx, b.awarded().CausedBy(env.Meta))
	})
	if err != nil {
		return err
	}
	return msg.Ack()
}

const sqlInboxMany = `
INSERT INTO message_inbox (consumer, event_id, aggregate_id)
SELECT 'points-awarder', * FROM unnest($1::uuid[], $2::text[])
ON CONFLICT DO NOTHING`

const sqlBookMany = `
WITH added AS (
	INSERT INTO points_entry (entry_id, order_id, user_id, kind, points, event_id)
	SELECT entry_id, order_id, user_id, 'award', points, event_id
	  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::uuid[]) AS e(entry_id, order_id, user_id, points, event_id)
	    ON CONFLICT ON CONSTRAINT points_entry_once DO NOTHING
	RETURNING entry_id, user_id, points, booked_at
), balances AS (
	INSERT INTO points_balance (user_id, balance)
	SELECT user_id, sum(points)::bigint FROM added GROUP BY user_id ORDER BY user_id
	    ON CONFLICT (user_id) DO UPDATE SET balance = points_balance.balance + excluded.balance, updated_at = excluded.updated_at
)
SELECT entry_id, booked_at FROM added`

// bookBatch holds the arguments of one transaction of the loop.
type bookBatch struct {
	events                 pgtype.FlatArray[pgtype.UUID] // the form that is cheapest to encode
	aggregates             []string
	entries, orders, users []string
	points                 []int64
	stage                  []statement // PointsAwarded, as the outbox would stage them
}

// pointsLoop runs nothing but the SQL, with its arguments ready: what is left
// when fetching, decoding, encoding and acknowledging cost nothing.
func (s *stand) pointsLoop(ctx context.Context) (Reading, error) {
	batches, err := bookBatches(ctx, s.sizing.events)
	if err != nil {
		return nil, err
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
	if err := s.checkpoint(ctx); err != nil {
		return nil, err
	}
	m, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return b.write(ctx, tx) }); err != nil {
			return nil, err
		}
	}
	r, err := m.stop(ctx, s.sizing.events)
	return r, errors.Join(err, checkPoints(ctx, pool, s.sizing.events))
}

func bookBatches(ctx context.Context, n int) ([]bookBatch, error) {
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "points"})
	if err != nil {
		return nil, err
	}
	var batches []bookBatch
	for first := 0; first < n; first += stageBatch {
		var batch bookBatch
		var drafts []messaging.Draft
		for i := first; i < min(first+stageBatch, n); i++ {
			paid := orderPaid{OrderID: orderID(i), UserID: fmt.Sprintf("u_%d", i*7919%5000), PointsDelta: int64(1 + i%50), PaidAt: time.Now().UTC()}
			b, err := newBooking(messaging.New(paid.OrderID, 1, paid).ID(), paid)
			if err != nil {
				return nil, err
			}
			batch.events, batch.aggregates = append(batch.events, pgtype.UUID{Bytes: b.eventID, Valid: true}), append(batch.aggregates, b.orderID)
			batch.entries, batch.orders, batch.users = append(batch.entries, b.entryID), append(batch.orders, b.orderID), append(batch.users, b.userID)
			batch.points = append(batch.points, b.points)
			drafts = append(drafts, b.awarded())
		}
		tx := &recordingTx{}
		if err := outbox.Add(ctx, tx, drafts...); err != nil {
			return nil, err
		}
		batch.stage = tx.statements
		batches = append(batches, batch)
	}
	return batches, nil
}

func (b bookBatch) write(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlInboxMany, b.events, b.aggregates); err != nil {
		return fmt.Errorf("write inbox: %w", err)
	}
	rows, err := tx.Query(ctx, sqlBookMany, b.entries, b.orders, b.users, b.points, b.events)
	if err != nil {
		return fmt.Errorf("book: %w", err)
	}
	if _, err := pgx.CollectRows(rows, pgx.RowToMap); err != nil {
		return fmt.Errorf("book: %w", err)
	}
	return (&work{statements: b.stage}).stage(ctx, tx)
}
