package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/messaging/messagingtest"
)

// many returns the first events of n aggregates.
func many(t *testing.T, prefix string, n int) (events [][]byte) {
	t.Helper()
	for i := range n {
		events = append(events, messagingtest.Envelope(t, fmt.Sprintf("%s-%d", prefix, i), 1, changed{N: 1}))
	}
	return events
}

// A bad release: every event fails, and none of them is at fault.
func TestWhenAllEventsFailAlikeTheConsumerStandsStillAndNoBudgetIsSpent(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newFragile(pool, messaging.ConsumerConfig{CircuitAfter: 5, CircuitPause: time.Minute, Logger: quiet}, func(messaging.Event[changed]) error {
		return errors.New("a field was renamed")
	})
	answers := messagingtest.Deliver(t, c, many(t, "a", 50)...)
	recorded, back := 0, 0
	for _, a := range answers {
		switch {
		case a.Acked:
			recorded++
		case a.Retry > 50*time.Second:
			back++
		}
	}
	if recorded != 5 || back != 45 {
		t.Errorf("got %d recorded and %d given back for the pause, want 5 and 45", recorded, back)
	}
	if answers := messagingtest.Deliver(t, c, many(t, "b", 3)...); answers[0].Acked || answers[0].Retry == 0 {
		t.Errorf("got %+v for what was fetched meanwhile, want it given back", answers[0])
	}
	if _, err := pool.Exec(t.Context(), `UPDATE message_failure SET next_attempt_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	if busy, err := c.RetryDue(t.Context()); busy || err != nil {
		t.Errorf("got %v, %v, want no retry during the pause", busy, err)
	}
	if got := count(t, pool, `SELECT sum(budget_attempts) FROM message_failure`); got != 5 {
		t.Errorf("got %d attempts spent, want the first of each recorded event", got)
	}
}

// The release is mended: what was given back and what was recorded is applied,
// and there is no dead letter.
func TestAfterTheCauseIsMendedEverythingIsAppliedWithoutADeadLetter(t *testing.T) {
	t.Parallel()
	pool, broker := newEffects(t), membroker.New(messaging.Subscription{Durable: "writer", Kinds: []messaging.Kind{changed{}.Kind()}})
	var mended atomic.Bool
	var calls atomic.Int64
	c := messaging.NewConsumer("writer", pool, broker, messaging.ConsumerConfig{CircuitAfter: 3, CircuitPause: 50 * time.Millisecond,
		RetryDelay: time.Millisecond, RetryDelayMax: 100 * time.Millisecond, RetryAttempts: 3, RetryPoll: 5 * time.Millisecond, Logger: quiet})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		calls.Add(1)
		if !mended.Load() {
			_, err := tx.Exec(ctx, `INSERT INTO not_there_yet VALUES (1)`)
			return err
		}
		return write(ctx, tx, "writer", ev)
	})
	stageMany(t, pool, 60, 60)
	startRelay(t, separatePool(t, pool), broker, messaging.RelayConfig{Logger: quiet})
	background(t, c.Run)
	// Many probes, far more than three attempts for each recorded event.
	eventually(t, 30*time.Second, func() string { return fmt.Sprintf("%d calls", calls.Load()) }, func() bool { return calls.Load() > 60 })
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'open'`); got != 0 {
		t.Errorf("got %d dead letters while the cause stands, want none", got)
	}
	mended.Store(true)
	awaitCount(t, pool, 60, sqlCountEffects)
	awaitCount(t, pool, 0, `SELECT count(*) FROM message_failure WHERE state <> 'resolved'`)
}

// A consumer must not stand still for ever because of what one code says.
func TestThePausesOfOneTroubleHaveABound(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newFragile(pool, messaging.ConsumerConfig{CircuitAfter: 2, CircuitPause: time.Millisecond, RetryDelay: time.Millisecond, RetryDelayMax: 4 * time.Millisecond,
		RetryBudget: 10 * time.Millisecond, Logger: quiet}, func(messaging.Event[changed]) error { return errors.New("never") })
	eventually(t, 30*time.Second, func() string { return "events are still given back" }, func() bool {
		return messagingtest.AllAcked(messagingtest.Deliver(t, c, many(t, fmt.Sprint(time.Now().UnixNano()), 4)...))
	})
}

func TestFailuresOfFewEventsAmongManyDoNotStopTheConsumer(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newFragile(pool, messaging.ConsumerConfig{CircuitAfter: 3, Logger: quiet}, func(ev messaging.Event[changed]) error {
		if len(ev.AggregateID)%2 == 0 {
			return errors.New("poison")
		}
		return nil
	})
	var events [][]byte
	for i := range 20 { // one good one after each bad one
		events = append(events, messagingtest.Envelope(t, fmt.Sprintf("g-%03d", i), 1, changed{N: 1}),
			messagingtest.Envelope(t, fmt.Sprintf("g-%04d", i), 1, changed{N: 1}))
	}
	if answers := messagingtest.Deliver(t, c, events...); !messagingtest.AllAcked(answers) {
		t.Errorf("got %v, want every event applied or recorded", answers)
	}
	if got := count(t, pool, sqlCountEffects); got != 20 {
		t.Errorf("got %d effects, want 20", got)
	}
}

func TestSettingsThatCannotWorkAreRefusedByName(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]messaging.ConsumerConfig{
		"Group is negative":          {Group: -1},
		"group of 20000":             {Group: 20_000},
		"Lease is negative":          {Lease: -time.Second},
		"lease of 1ms":               {Lease: time.Millisecond},
		"handler timeout of 1ms":     {HandlerTimeout: time.Millisecond},
		"HandlerTimeout is negative": {HandlerTimeout: -1},
		"above the longest":          {RetryDelay: time.Hour},
		"RetryAttempts is negative":  {RetryAttempts: -1},
		"RetryBudget is negative":    {RetryBudget: -1},
		"CircuitAfter is negative":   {CircuitAfter: -1},
		"MaxParked is negative":      {MaxParked: -1},
		"neither link nor child":     {TraceParent: "parent"},
		"ReplayApproval is negative": {ReplayApproval: -5},
		"DeadLetterSLA is negative":  {DeadLetterSLA: -5},
		"RetryPoll is negative":      {RetryPoll: -5},
		"RetryDelayMax is negative":  {RetryDelayMax: -5},
		"CircuitPause is negative":   {CircuitPause: -5},
		"GapWait is negative":        {GapWait: -5},
		"RetryDelay is negative":     {RetryDelay: -5},
		"PerAggregate is negative":   {MaxParkedPerAggregate: -5},
	} {
		err := messaging.NewConsumer("writer", nil, nil, cfg).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "consumer writer") {
			t.Errorf("%+v: got %v, want %q", cfg, err, want)
		}
	}
	if err := (messaging.ConsumerConfig{}).Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
