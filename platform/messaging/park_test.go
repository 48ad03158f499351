package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

// newFragile returns a consumer that writes one effect per event, unless fail says otherwise.
func newFragile(pool *pgxpool.Pool, cfg messaging.ConsumerConfig, fail func(messaging.Event[changed]) error) *messaging.Consumer {
	c := messaging.NewConsumer("writer", pool, nil, cfg)
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if err := fail(ev); err != nil {
			return err
		}
		return write(ctx, tx, "writer", ev)
	})
	return c
}

// requireInOrder fails unless each aggregate's effects are 1, 2, 3 … up to last.
func requireInOrder(t *testing.T, pool *pgxpool.Pool, last int) {
	t.Helper()
	wrong := count(t, pool, `SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY aggregate ORDER BY seq) AS before FROM effect) e WHERE n <> before + 1`)
	short := count(t, pool, `SELECT count(*) FROM (SELECT aggregate FROM effect GROUP BY aggregate HAVING max(n) <> $1) e`, last)
	if wrong+short > 0 {
		t.Errorf("got %d effects out of order and %d aggregates that are not at version %d", wrong, short, last)
	}
}

func changes(t *testing.T, aggregate string, versions ...int) (events [][]byte) {
	t.Helper()
	for _, version := range versions {
		events = append(events, messagingtest.Envelope(t, aggregate, int64(version), changed{N: version}))
	}
	return events
}

// C34: a failing event parks its followers, in order, and nobody else.
func TestAFailingEventParksItsFollowersAndNobodyElse(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	var mended atomic.Bool
	cfg := messaging.ConsumerConfig{RetryDelay: time.Hour, RetryDelayMax: time.Hour, RetryBudget: 100 * time.Hour} // due only when the test says so
	c := newFragile(pool, cfg, func(ev messaging.Event[changed]) error {
		if ev.AggregateID == "poor" && ev.Data.N == 2 && !mended.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	messagingtest.Deliver(t, c, append(changes(t, "poor", 1, 2, 3, 4), changes(t, "good", 1, 2, 3, 4, 5)...)...)
	messagingtest.Deliver(t, c, changes(t, "poor", 5)...) // in a later group
	if got := count(t, pool, `SELECT count(*) FROM effect WHERE aggregate = 'good'`); got != 5 {
		t.Errorf("got %d effects of the other aggregate, want 5", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'parked' AND aggregate_version IN (3, 4, 5)`); got != 3 {
		t.Errorf("got %d parked followers, want 3", got)
	}
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, `SELECT max(attempts) FROM message_failure`); got != 2 {
		t.Errorf("got %d attempts, want 2", got)
	}
	mended.Store(true)
	messagingtest.RetryAll(t, pool, c)
	requireInOrder(t, pool, 5)
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'resolved' AND resolution = 'applied'`); got != 4 {
		t.Errorf("got %d resolved rows, want 4", got)
	}
}

// C31: what waits for an earlier event must not park that event behind itself.
func TestAnEarlierVersionPassesAnEventThatWaitsForIt(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if ev.Data.N == 3 {
			var seen bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM effect WHERE n = 2)`).Scan(&seen); err != nil || !seen {
				return errors.Join(err, messaging.RetryAfter(errors.New("its payment has not come"), time.Second))
			}
		}
		return write(ctx, tx, "writer", ev)
	})
	messagingtest.Deliver(t, c, changes(t, "order", 3)...)
	messagingtest.Deliver(t, c, changes(t, "order", 2)...)
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 2 {
		t.Errorf("got %d effects, want 2", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state <> 'resolved'`); got != 0 {
		t.Errorf("got %d unresolved rows, want 0", got)
	}
}

func TestASpentBudgetMakesADeadLetterAndParkedOnesStayBehindIt(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newFragile(pool, messaging.ConsumerConfig{RetryAttempts: 3, Owner: "points team", Runbook: "docs/05"}, func(ev messaging.Event[changed]) error {
		if ev.Data.N == 1 {
			return errors.New("never")
		}
		return nil
	})
	messagingtest.Deliver(t, c, changes(t, "a", 1, 2)...)
	for range 4 {
		messagingtest.RetryAll(t, pool, c)
	}
	dead := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'open' AND attempts = 3 AND owner = 'points team' AND due_at > now()`)
	if parked := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'parked'`); dead != 1 || parked != 1 {
		t.Errorf("got %d dead letters and %d parked, want 1 and 1", dead, parked)
	}
	if got := count(t, pool, sqlCountEffects); got != 0 {
		t.Errorf("got %d effects, want 0", got)
	}
}

// C15b, C54: the event of a dead letter that comes again changes nothing more
// than a count, and is applied once in the end.
func TestAnEventThatIsRecordedAndComesAgainIsAppliedOnce(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	var mended atomic.Bool
	c := newFragile(pool, messaging.ConsumerConfig{}, func(messaging.Event[changed]) error {
		if !mended.Load() {
			return messaging.Permanent(errors.New("bad"))
		}
		return nil
	})
	event := changes(t, "a", 1)[0]
	for range 3 {
		messagingtest.Deliver(t, c, event)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'open' AND attempts = 3`); got != 1 {
		t.Errorf("got %d dead letters with three attempts, want 1", got)
	}
	mended.Store(true)
	messagingtest.Deliver(t, c, event) // the stream delivers it once more, and now it works
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 1 {
		t.Errorf("got %d effects, want 1", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'resolved'`); got != 1 {
		t.Errorf("got %d resolved failures, want it closed by the delivery that applied the event", got)
	}
}

func TestAboveTheBoundEventsStayWithTheBroker(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newFragile(pool, messaging.ConsumerConfig{MaxParkedPerAggregate: 2}, func(ev messaging.Event[changed]) error {
		if ev.Data.N == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	messagingtest.Deliver(t, c, changes(t, "a", 1, 2, 3)...)
	if answer := messagingtest.Deliver(t, c, changes(t, "a", 4)...)[0]; answer.Acked || answer.Retry <= 0 {
		t.Errorf("got %+v, want it handed back for later", answer)
	}
}

// The version rule: duplicates and stale versions change nothing, the next is
// applied, a future one waits; in any order, all of them in the end.
func TestEveryVersionIsAppliedOnceAndInOrderHoweverTheyArrive(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newWriter(t, pool, "projection")
	c.EveryVersion()
	var events [][]byte
	for aggregate := range 5 {
		events = append(events, changes(t, fmt.Sprint("thing-", aggregate), 1, 2, 3, 4, 5, 6)...)
	}
	events = append(events, events...) // each twice
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for start := 0; start < len(events); start += 7 {
		messagingtest.Deliver(t, c, events[start:min(start+7, len(events))]...)
	}
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 30 {
		t.Errorf("got %d effects, want 30", got)
	}
	requireInOrder(t, pool, 6)
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state <> 'resolved'`); got != 0 {
		t.Errorf("got %d events that still wait, want 0", got)
	}
	messagingtest.Deliver(t, c, messagingtest.Envelope(t, "thing-0", 2, changed{N: 99})) // claims an old version
	if got := count(t, pool, `SELECT count(*) FROM message_inbox WHERE result = 'stale'`); got != 1 {
		t.Errorf("got %d stale rows, want 1", got)
	}
}

func TestAMissingVersionIsFetchedFromItsOwner(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	lost := changes(t, "a", 1, 2, 3)
	asked := 0
	c := messaging.NewConsumer("projection", pool, nil, messaging.ConsumerConfig{
		Backfill: func(_ context.Context, aggregateType, aggregateID string, after, before int64) ([][]byte, bool, error) {
			asked++
			if aggregateType != "thing" || aggregateID != "a" || after != 0 || before != 4 {
				t.Errorf("got a request for %s %s between %d and %d", aggregateType, aggregateID, after, before)
			}
			return lost, true, nil
		},
	})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "projection", ev)
	})
	c.EveryVersion()
	messagingtest.Deliver(t, c, changes(t, "a", 4, 5)...)
	messagingtest.RetryAll(t, pool, c)
	requireInOrder(t, pool, 5)
	if asked != 1 {
		t.Errorf("got %d questions to the owner, want 1", asked)
	}
}

// A number that does not exist anywhere must not stop an aggregate for ever.
func TestAVersionThatItsOwnerNeverMadeIsPassedOver(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("projection", pool, nil, messaging.ConsumerConfig{
		Backfill: func(context.Context, string, string, int64, int64) ([][]byte, bool, error) { return nil, true, nil },
	})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "projection", ev)
	})
	c.EveryVersion()
	messagingtest.Deliver(t, c, changes(t, "a", 1, 4, 5)...)
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 3 {
		t.Errorf("got %d effects, want 3", got)
	}
}

func TestAGapThatNobodyCanFillBecomesADeadLetterInItsTime(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("projection", pool, nil, messaging.ConsumerConfig{RetryBudget: time.Second, GapWait: 600 * time.Millisecond,
		Backfill: func(context.Context, string, string, int64, int64) ([][]byte, bool, error) {
			return nil, false, errors.New("connection refused")
		},
	})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "projection", ev)
	})
	c.EveryVersion()
	messagingtest.Deliver(t, c, changes(t, "a", 2)...)
	for range 4 {
		messagingtest.RetryAll(t, pool, c)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'open' AND error_code = 'version_gap' AND due_at > now()`); got != 1 {
		t.Errorf("got %d dead letters, want 1", got)
	}
	messagingtest.Deliver(t, c, changes(t, "a", 1)...) // it comes after all
	messagingtest.RetryAll(t, pool, c)
	requireInOrder(t, pool, 2)
}

func TestPayloadsOfFailuresAreSealedAndComeBackWhole(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	keys := &messaging.PayloadKeys{Current: "k1", Keys: map[string][]byte{"k1": bytes.Repeat([]byte{7}, 32)}}
	var mended atomic.Bool
	c := newFragile(pool, messaging.ConsumerConfig{PayloadKeys: keys}, func(messaging.Event[changed]) error {
		if mended.Load() {
			return nil
		}
		return errors.New("not yet")
	})
	messagingtest.Deliver(t, c, messagingtest.Envelope(t, "a", 1, changed{N: 1, Note: "secret"}))
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE sealed_by = 'k1' AND position('secret'::bytea IN payload) = 0`); got != 1 {
		t.Errorf("got %d sealed rows, want 1", got)
	}
	mended.Store(true)
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, `SELECT count(*) FROM effect WHERE note = 'secret'`); got != 1 {
		t.Errorf("got %d effects, want 1", got)
	}
}
