package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

const sqlUnresolved = `SELECT count(*) FROM message_failure WHERE state IN ('retrying', 'parked', 'open')`

// C54: the row of a dead letter whose event is applied by a redelivery must not
// stop its aggregate, nor wait for a person.
func TestADeadLetterThatIsRedeliveredAndAppliedIsClosed(t *testing.T) {
	t.Parallel()
	pool, c, mended := deadLetters(t, messaging.ConsumerConfig{})
	events := changes(t, "a", 1, 2)
	messagingtest.Deliver(t, c, events...)
	mended.Store(true)
	messagingtest.Deliver(t, c, events[0])
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, sqlUnresolved); got != 0 {
		t.Errorf("got %d unresolved failures, want 0", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE resolution = 'redelivered'`); got != 1 {
		t.Errorf("got %d closed by the redelivery, want 1", got)
	}
	requireInOrder(t, pool, 2)
}

// C55: what a replay has applied is closed, and no restart runs it again.
func TestADeadLetterThatAReplayAppliesIsClosedForGood(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	var mended atomic.Bool
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if !mended.Load() {
			return messaging.Permanent(errors.New("refused"))
		}
		return write(ctx, tx, "writer", ev)
	})
	events := changes(t, "a", 1)
	messagingtest.Deliver(t, c, events...)
	mended.Store(true)
	id, _, err := c.CreateReplay(t.Context(), replayOf(events))
	if err != nil {
		t.Fatal(err)
	}
	if err := messaging.NewReplays(pool).Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	for range 3 { // it is done after the first; the others are restarts
		runUntilDone(t, pool, c)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE resolution = 'replay ' || $1`, id.String()); got != 1 {
		t.Errorf("got %d failures closed by the replay, want 1", got)
	}
	if got := count(t, pool, sqlCountEffects); got != 1 {
		t.Errorf("got %d effects, want 1", got)
	}
	if got := count(t, pool, sqlUnresolved); got != 0 {
		t.Errorf("got %d unresolved failures, want 0", got)
	}
}

func TestTheEventThatWasCorrectedHasNoEffectWhenItComesAgain(t *testing.T) {
	t.Parallel()
	pool, c, mended := deadLetters(t, messaging.ConsumerConfig{})
	wrong := messagingtest.Envelope(t, "a", 1, changed{N: 7})
	messagingtest.Deliver(t, c, wrong)
	desk := messaging.NewDeadLetters(pool, nil)
	open, err := desk.List(t.Context(), messaging.FailureFilter{State: "open"})
	if err != nil || len(open) != 1 {
		t.Fatalf("got %+v, %v", open, err)
	}
	mended.Store(true)
	right := bytes.Replace(wrong, []byte(`"n":7`), []byte(`"n":5`), 1)
	if _, err := desk.Fix(t.Context(), open[0].FailureID, right, mei); err != nil {
		t.Fatal(err)
	}
	if _, err := desk.Fix(t.Context(), open[0].FailureID, right, mei); !errors.Is(err, messaging.ErrSettled) {
		t.Errorf("got %v for a second correction, want ErrSettled", err)
	}
	messagingtest.Deliver(t, c, wrong) // the stream still has it
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, `SELECT sum(n) FROM effect`); got != 5 {
		t.Errorf("got effects with the sum %d, want 5: the correction alone", got)
	}
}

func TestWhoLooksAtAPayloadIsRecorded(t *testing.T) {
	t.Parallel()
	pool, c, _ := deadLetters(t, messaging.ConsumerConfig{})
	messagingtest.Deliver(t, c, changes(t, "a", 1)...)
	desk := messaging.NewDeadLetters(pool, nil)
	if _, err := desk.Reveal(t.Context(), 1, messaging.Actor{Name: "mei"}); !errors.Is(err, messaging.ErrNoReason) {
		t.Errorf("got %v without a reason, want ErrNoReason", err)
	}
	if _, err := desk.Reveal(t.Context(), 99, mei); !errors.Is(err, messaging.ErrNoFailure) {
		t.Errorf("got %v, want ErrNoFailure", err)
	}
	detail, err := desk.Reveal(t.Context(), 1, mei)
	if err != nil || len(detail.Payload) == 0 || len(detail.Actions) != 1 || detail.Actions[0].Action != "reveal" {
		t.Errorf("got %+v, %v", detail, err)
	}
	if all, err := messaging.NewHistory(pool).Actions(t.Context(), 0, 10); err != nil || len(all) != 1 {
		t.Errorf("got %+v, %v, want the one action", all, err)
	}
}

// C57: what could not even be read is tried again when a person says so, and
// returns to the dead letters with its history.
func TestAnUnreadableEventThatIsRetriedFailsAgainWithItsHistory(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newWriter(t, pool, "writer")
	event := bytes.Replace(changes(t, "a", 1)[0], []byte(`"n":1`), []byte(`"n":"one"`), 1)
	messagingtest.Deliver(t, c, event)
	first := count(t, pool, `SELECT extract(epoch FROM first_failed_at)::bigint FROM message_failure WHERE state = 'open'`)
	n, err := messaging.NewDeadLetters(pool, nil).Retry(t.Context(), messaging.FailureFilter{Code: "bad_data"}, mei)
	if err != nil || n != 1 {
		t.Fatalf("got %d, %v", n, err)
	}
	if _, err := c.RetryDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'open' AND attempts = 2 AND due_at IS NOT NULL`); got != 1 {
		t.Errorf("got %d dead letters with two attempts, want 1", got)
	}
	if got := count(t, pool, `SELECT extract(epoch FROM first_failed_at)::bigint FROM message_failure`); got != first {
		t.Errorf("it first failed at %d, want %d as before", got, first)
	}
}
