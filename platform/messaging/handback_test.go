package messaging_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/postgres"
)

// What the owner of an aggregate or a replay brings does not come again by
// itself. While the consumer hands events back, because it stands still or has
// recorded as many failures as it may, nobody may go on behind them.

func TestAMissingVersionIsNotPassedOverWhileTheConsumerTakesNoEvents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg    messaging.ConsumerConfig
		before [][]byte // fail first
	}{
		"standing still": {messaging.ConsumerConfig{CircuitAfter: 1, CircuitPause: time.Millisecond, RetryDelay: time.Millisecond, RetryDelayMax: time.Millisecond},
			changes(t, "b", 1, 2)},
		"parking is full": {messaging.ConsumerConfig{CircuitAfter: 1000, MaxParked: 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, cfg := newEffects(t), tc.cfg
			missing := changes(t, "a", 1)
			cfg.GapWait, cfg.Logger = time.Millisecond, quiet
			cfg.Backfill = func(context.Context, string, string, int64, int64) ([][]byte, bool, error) { return missing, true, nil }
			var mended atomic.Bool
			c := messaging.NewConsumer("writer", pool, nil, cfg)
			c.EveryVersion()
			messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
				if ev.AggregateVersion == 1 && !mended.Load() {
					return errors.New("a table is missing")
				}
				return write(ctx, tx, "writer", ev)
			})
			messagingtest.Deliver(t, c, append(tc.before, changes(t, "a", 2)...)...) // waits for the first
			messagingtest.RetryAll(t, pool, c)
			if got := count(t, pool, `SELECT coalesce(max(last_version), 0) FROM message_progress WHERE aggregate_id = 'a'`); got != 0 {
				t.Fatalf("got version %d passed over, want the first one to be waited for", got)
			}
			mended.Store(true)
			eventually(t, 30*time.Second, func() string { return "not all versions are applied" }, func() bool {
				messagingtest.RetryAll(t, pool, c)
				return count(t, pool, sqlCountEffects) == 2+len(tc.before)
			})
			requireInOrder(t, pool, 2)
		})
	}
}

func TestAReplayWaitsWhileTheConsumerTakesNoEvents(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	var mended atomic.Bool
	var calls atomic.Int64
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{CircuitAfter: 1, CircuitPause: 10 * time.Millisecond,
		RetryDelay: time.Millisecond, RetryDelayMax: 10 * time.Millisecond, RetryPoll: 5 * time.Millisecond, Logger: quiet})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		calls.Add(1)
		if !mended.Load() {
			return errors.New("a table is missing")
		}
		return write(ctx, tx, "writer", ev)
	})
	id, _, err := c.CreateReplay(t.Context(), replayOf(many(t, "a", 20)))
	if err != nil {
		t.Fatal(err)
	}
	if err := messaging.NewReplays(pool).Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	stop := background(t, c.Run)
	// One event is recorded, the others are handed back, and after each pause one is tried.
	eventually(t, 30*time.Second, func() string { return "nothing is tried" }, func() bool { return calls.Load() > 40 })
	if got := count(t, pool, `SELECT count(*) FROM message_replay_item WHERE done_at IS NOT NULL`); got != 0 {
		t.Errorf("got %d items done, want none: nothing was applied", got)
	}
	stop()
	mended.Store(true)
	done := runUntilDone(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 20 || done.Done != 20 {
		t.Errorf("got %d effects and %d items done, want 20 of each", got, done.Done)
	}
}

// The broker knows nothing of aggregates: while one event is away it delivers
// the next.
func TestNoEventOvertakesAnEarlierOneThatWasHandedBack(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]messaging.ConsumerConfig{
		"standing still":  {CircuitAfter: 1, CircuitPause: time.Millisecond, RetryDelay: time.Millisecond, RetryDelayMax: 4 * time.Millisecond},
		"parking is full": {CircuitAfter: 1000, MaxParked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, cfg := newEffects(t), cfg
			cfg.Logger = quiet
			var broken atomic.Bool
			broken.Store(true)
			c := messaging.NewConsumer("writer", pool, nil, cfg)
			messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
				if broken.Load() && ev.AggregateVersion == 1 {
					return errors.New("a table is missing")
				}
				return write(ctx, tx, "writer", ev)
			})
			recorded, events := changes(t, "b", 1), changes(t, "a", 1, 2, 3)
			messagingtest.Deliver(t, c, recorded...) // now there is no room for another failure
			if answers := messagingtest.Deliver(t, c, events[0]); answers[0].Acked {
				t.Fatalf("got %+v, want the event handed back", answers)
			}
			broken.Store(false)
			eventually(t, 10*time.Second, func() string { return "it stands still for ever" }, func() bool {
				return messagingtest.AllAcked(messagingtest.Deliver(t, c, changes(t, "c", 2)...)) // whatever else there is goes on
			})
			if answers := messagingtest.Deliver(t, c, events[1], events[2]); answers[0].Acked || answers[1].Acked {
				t.Fatalf("got %+v, want both handed back: the first is away", answers)
			}
			if answers := messagingtest.Deliver(t, c, events[2], events[0]); answers[0].Acked || !answers[1].Acked {
				t.Fatalf("got %+v, want only the first applied: the second is away", answers)
			}
			if answers := messagingtest.Deliver(t, c, events[1], events[2]); !messagingtest.AllAcked(answers) {
				t.Fatalf("got %+v, want both applied", answers)
			}
			if got := count(t, pool, `SELECT string_agg(n::text, '' ORDER BY seq)::int FROM effect WHERE aggregate = 'a'`); got != 123 {
				t.Errorf("got versions %d in the order of their effects, want 123", got)
			}
		})
	}
}

// The database goes away while the first half of a group is applied, and the
// consumer is told to stop. It must not go on with the second half.
func TestWhatIsLeftUndoneIsNotOvertakenByTheRestOfItsGroup(t *testing.T) {
	t.Parallel()
	pool, broker := newEffects(t), membroker.New(messaging.Subscription{Durable: "writer", Kinds: []messaging.Kind{changed{}.Kind()}})
	stageMany(t, pool, 2, 1)
	startRelay(t, separatePool(t, pool), broker, messaging.RelayConfig{Logger: quiet})
	eventually(t, 10*time.Second, func() string { return "the events are not published" }, func() bool { return len(broker.Stored()) == 2 })

	ctx, stop := context.WithCancel(t.Context())
	var calls atomic.Int64
	consume := func(handle func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error) error {
		c := messaging.NewConsumer("writer", pool, broker, messaging.ConsumerConfig{Lease: 2 * time.Second, Logger: quiet})
		messaging.Handle(c, handle)
		return c.Run(ctx)
	}
	err := consume(func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		switch {
		case ev.AggregateVersion == 2:
			return write(ctx, tx, "writer", ev)
		case calls.Add(1) == 1:
			return errors.New("refused, so that the group is halved")
		}
		stop()
		return postgres.ErrNotBegun
	})
	if got := count(t, pool, sqlCountEffects); err != nil || got != 0 {
		t.Errorf("got %d effects, %v, want none: the first event has not had its own", got, err)
	}
}
