package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/pgtest"
)

// writer is a consumer that writes one row for each event. Nothing but the
// inbox keeps it from writing a second one.
const writer = "writer"

var written = messaging.Subscription{Durable: writer, Kinds: []messaging.Kind{stepped{}.Kind()}}

const sqlEffect = `INSERT INTO effect VALUES ($1)`

func createEffects(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `CREATE TABLE effect (event_id uuid)`); err != nil {
		t.Fatal(err)
	}
	return pool
}

// published returns a broker in memory that holds n events, and their ids.
func published(t *testing.T, n int) (*pgxpool.Pool, *membroker.Broker, []uuid.UUID) {
	t.Helper()
	pool, broker := createEffects(t, pgtest.New(t, "messaging")), membroker.New(written)
	staged := stage(t, pool, n, 1)
	relayAll(t, pool, broker)
	return pool, broker, staged
}

// newWriter returns the consumer; before, if not nil, is called ahead of each
// effect.
func newWriter(pool *pgxpool.Pool, subscriber messaging.Subscriber, cfg messaging.ConsumerConfig, before func() error) *messaging.Consumer {
	consumer := messaging.NewConsumer(writer, pool, subscriber, cfg)
	messaging.Handle(consumer, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[stepped]) error {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, sqlEffect, ev.EventID)
		return err
	})
	return consumer
}

// relayAll relays until everything is published.
func relayAll(t *testing.T, pool *pgxpool.Pool, publisher messaging.Publisher) {
	t.Helper()
	relay, err := messaging.NewRelay(pool, publisher, messaging.RelayConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := relay.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	eventually(t, 30*time.Second, "the queue is empty, and nothing is held", func() bool {
		return count(t, pool, `SELECT (SELECT count(*) FROM message_outbox_pending) + (SELECT count(*) FROM message_outbox_held)`) == 0
	})
}

// patience is how long a system that does its work right may take for it
// here, and how long one that never will is waited for.
const patience = 10 * time.Second

// runUntil runs the consumer until cond is true, or for as long as patience lasts.
func runUntil(t *testing.T, consumer *messaging.Consumer, cond func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := consumer.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for ctx.Err() == nil && !cond() {
		<-time.After(10 * time.Millisecond)
	}
}

// effects runs the consumer, if there is one, until every event is in
// its inbox, and returns what is lost and what was done twice.
func effects(t *testing.T, pool *pgxpool.Pool, staged []uuid.UUID, consumer *messaging.Consumer) (found []string) {
	t.Helper()
	if consumer != nil {
		runUntil(t, consumer, func() bool { return count(t, pool, `SELECT count(*) FROM message_inbox`) == len(staged) })
	}
	if lost := len(staged) - count(t, pool, `SELECT count(DISTINCT event_id) FROM effect`); lost != 0 {
		found = append(found, fmt.Sprintf("%d of %d effects are lost", lost, len(staged)))
	}
	if twice := count(t, pool, `SELECT count(*) - count(DISTINCT event_id) FROM effect`); twice != 0 {
		found = append(found, fmt.Sprintf("%d effects are there twice", twice))
	}
	return found
}

// lostAndReversed compares what the broker holds with what was staged.
func lostAndReversed(broker *membroker.Broker, staged []uuid.UUID) (found []string) {
	stored, newest := map[uuid.UUID]bool{}, map[string]int64{}
	for _, m := range broker.Stored() {
		stored[m.ID] = true
		var event struct {
			AggregateID      string `json:"aggregate_id"`
			AggregateVersion int64  `json:"aggregate_version"`
		}
		if err := json.Unmarshal(m.Data, &event); err != nil {
			found = append(found, err.Error())
		}
		if event.AggregateVersion < newest[event.AggregateID] {
			found = append(found, fmt.Sprintf("%s: version %d came after %d", event.AggregateID, event.AggregateVersion, newest[event.AggregateID]))
		}
		newest[event.AggregateID] = event.AggregateVersion
	}
	if lost := len(staged) - len(stored); lost != 0 {
		found = append(found, fmt.Sprintf("%d of %d events are lost", lost, len(staged)))
	}
	return found
}
