package messaging_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

// The owner has answered, and it is the consumer that takes no events: that is
// no reason to give up on what waits for them.
func TestAGapSpendsNothingWhileTheConsumerTakesNoEvents(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	missing := changes(t, "a", 1)
	var mended atomic.Bool
	c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{MaxParked: 1, CircuitAfter: 1000,
		RetryBudget: time.Second, GapWait: 600 * time.Millisecond, Logger: quiet,
		Backfill: func(context.Context, string, string, int64, int64) ([][]byte, bool, error) { return missing, true, nil }})
	c.EveryVersion()
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if !mended.Load() {
			return errors.New("a table is missing")
		}
		return write(ctx, tx, "writer", ev)
	})
	messagingtest.Deliver(t, c, changes(t, "a", 2)...) // waits for the first, for which there is then no room
	for range 5 {
		messagingtest.RetryAll(t, pool, c)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'parked' AND error_code = 'version_gap' AND budget_spent = '0'
		AND next_attempt_at > clock_timestamp()`); got != 1 {
		t.Errorf("got %d gaps that are looked at later and have spent nothing, want 1", got)
	}
	mended.Store(true)
	messagingtest.RetryAll(t, pool, c)
	requireInOrder(t, pool, 2)
	if got := count(t, pool, sqlCountEffects); got != 2 {
		t.Errorf("got %d effects, want 2", got)
	}
}
