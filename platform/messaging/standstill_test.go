package messaging_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/pgtest"
)

// C43: handlers of one aggregate never return. Their time ends, they are
// recorded, and everything else goes on.
func TestAHandlerThatNeverReturnsIsEndedAndHoldsNobodyElseUp(t *testing.T) {
	t.Parallel()
	pool, broker := newEffects(t), membroker.New(messaging.Subscription{Durable: "writer", Kinds: []messaging.Kind{changed{}.Kind()}})
	c := messaging.NewConsumer("writer", pool, broker, messaging.ConsumerConfig{Group: 4, HandlerTimeout: 200 * time.Millisecond, Logger: quiet})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if ev.AggregateID == "thing-0" {
			<-ctx.Done()
			return ctx.Err()
		}
		return write(ctx, tx, "writer", ev)
	})
	stageMany(t, pool, 40, 10) // four events of each thing
	startRelay(t, separatePool(t, pool), broker, messaging.RelayConfig{Logger: quiet})
	background(t, c.Run)
	awaitCount(t, pool, 36, `SELECT count(*) FROM effect`)
	awaitCount(t, pool, 4, `SELECT count(*) FROM message_failure WHERE aggregate_id = 'thing-0' AND state IN ('retrying', 'parked')`)
}

// C44: a report, a dump or somebody's forgotten session holds an old snapshot.
// What it keeps from being vacuumed makes the queue larger; it holds no event
// back.
func TestAForgottenTransactionHoldsNoEventBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 100, 10)
	forgotten, err := separatePool(t, pool).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := forgotten.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	before := 0
	if err := forgotten.QueryRow(t.Context(), `SELECT count(*) FROM message_outbox_pending`).Scan(&before); err != nil || before != 100 {
		t.Fatalf("the forgotten transaction sees %d events, %v, want 100", before, err)
	}
	broker := newRecorder()
	startRelay(t, pool, broker, messaging.RelayConfig{Logger: quiet})
	for published := 600; published <= 3100; published += 500 {
		stageMany(t, pool, 500, 10)
		awaitCount(t, pool, published, sqlCountPublished)
	}
	after := 0
	if err := forgotten.QueryRow(t.Context(), `SELECT count(*) FROM message_outbox_pending`).Scan(&after); err != nil || after != before {
		t.Errorf("the forgotten transaction sees %d events now, %v, want the same %d: it was not open", after, err, before)
	}
}
