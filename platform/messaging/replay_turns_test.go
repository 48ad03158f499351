package messaging_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

// started makes a replay of these events and starts it.
func started(t *testing.T, pool *pgxpool.Pool, c *messaging.Consumer, request messaging.ReplayRequest) uuid.UUID {
	t.Helper()
	id, _, err := c.CreateReplay(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if err := messaging.NewReplays(pool).Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	return id
}

// The events of the first fail, and there is no room to record another failure:
// its chunk stays open, again and again.
func TestAReplayThatCannotGoOnHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{MaxParked: 1})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if ev.AggregateID != "good" {
			return errors.New("not now")
		}
		return write(ctx, tx, "writer", ev)
	})
	messagingtest.Deliver(t, c, changes(t, "fills", 1)...)
	stuck := started(t, pool, c, replayOf(changes(t, "bad", 1, 2)))
	others := []uuid.UUID{started(t, pool, c, replayOf(changes(t, "good", 1, 2))), started(t, pool, c, replayOf(changes(t, "good", 3)))}

	stop := background(t, c.Run)
	awaitCount(t, pool, len(others), `SELECT count(*) FROM message_replay WHERE state = 'done'`)
	stop()
	if got := count(t, pool, `SELECT count(*) FROM message_replay_item WHERE replay_id = $1 AND done_at IS NOT NULL`, stuck); got != 0 {
		t.Errorf("got %d events of the first done, want it stuck: or this shows nothing", got)
	}
	requireInOrder(t, pool, 3)
}

// Whoever was told to go slowly does not set the pace.
func TestASlowReplayDoesNotSlowTheOthers(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	slow := replayOf(changes(t, "slow", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
	slow.PerSecond = 1
	started(t, pool, c, slow)
	quick := replayOf(nil)
	for n := range 400 { // four chunks
		quick.Events = append(quick.Events, changes(t, "quick", n+1)...)
	}
	id := started(t, pool, c, quick)
	began := time.Now()
	stop := background(t, c.Run)
	eventually(t, 20*time.Second, func() string { return "the quick replay is not done" }, func() bool {
		return count(t, pool, `SELECT count(*) FROM message_replay WHERE state = 'done' AND replay_id = $1`, id) == 1
	})
	stop()
	took := time.Since(began) // until nothing happens any more
	got, most := count(t, pool, `SELECT count(*) FROM message_replay_item WHERE replay_id <> $1 AND done_at IS NOT NULL`, id), int(took/time.Second)+1
	if got < 1 || got > most {
		t.Errorf("got %d events of the slow one in %v, want from 1 to %d", got, took, most)
	}
}
