package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

var mei = messaging.Actor{Name: "mei", Reason: "the rule was wrong until 10:00"}

// deadLetters returns a consumer of which every event is refused until mended.
func deadLetters(t *testing.T, cfg messaging.ConsumerConfig) (pool *pgxpool.Pool, c *messaging.Consumer, mended *atomic.Bool) {
	t.Helper()
	pool, mended = newEffects(t), &atomic.Bool{}
	c = newFragile(pool, cfg, func(messaging.Event[changed]) error {
		if mended.Load() {
			return nil
		}
		return messaging.Permanent(messaging.Coded("bad_rule", errors.New("refused")))
	})
	return pool, c, mended
}

func TestOperatorsListGroupShowAndRetryDeadLetters(t *testing.T) {
	t.Parallel()
	pool, c, mended := deadLetters(t, messaging.ConsumerConfig{Owner: "points team"})
	messagingtest.Deliver(t, c, append(changes(t, "a", 1, 2), changes(t, "b", 1)...)...)
	desk := messaging.NewDeadLetters(pool, nil)
	groups, err := desk.Groups(t.Context())
	if err != nil || len(groups) != 2 || groups[0].Count != 2 || groups[0].ErrorCode != "bad_rule" {
		t.Fatalf("got %+v, %v", groups, err)
	}
	open, err := desk.List(t.Context(), messaging.FailureFilter{Consumer: "writer", State: "open"})
	if err != nil || len(open) != 2 {
		t.Fatalf("got %+v, %v", open, err)
	}
	detail, err := desk.Show(t.Context(), open[0].FailureID)
	if err != nil || !bytes.Contains(detail.Payload, []byte(`"ThingChanged"`)) || detail.Owner != "points team" {
		t.Fatalf("got %+v, %v", detail, err)
	}

	mended.Store(true)
	if _, err := desk.Retry(t.Context(), messaging.FailureFilter{}, mei); !errors.Is(err, messaging.ErrEverything) {
		t.Errorf("got %v for a filter without conditions, want ErrEverything", err)
	}
	n, err := desk.Retry(t.Context(), messaging.FailureFilter{Consumer: "writer", Code: "bad_rule"}, mei)
	if err != nil || n != 2 {
		t.Fatalf("got %d, %v, want 2 retried", n, err)
	}
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 3 {
		t.Errorf("got %d effects, want 3", got)
	}
	detail, err = desk.Show(t.Context(), open[0].FailureID)
	if err != nil || detail.State != "resolved" || len(detail.Actions) != 1 || detail.Actions[0].Actor != "mei" {
		t.Errorf("got %+v, %v", detail, err)
	}
}

// C54: two operators click at once, and the stream delivers it too.
func TestManyRetriesAtOnceHaveOneEffect(t *testing.T) {
	t.Parallel()
	pool, c, mended := deadLetters(t, messaging.ConsumerConfig{})
	event := changes(t, "a", 1)
	messagingtest.Deliver(t, c, event...)
	mended.Store(true)
	desk := messaging.NewDeadLetters(pool, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := desk.Retry(t.Context(), messaging.FailureFilter{Consumer: "writer"}, mei); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() { messagingtest.Deliver(t, c, event...) })
	all.Wait()
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 1 {
		t.Errorf("got %d effects, want 1", got)
	}
}

func TestACorrectedEventIsANewOneThatNamesTheOld(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newWriter(t, pool, "writer")
	wrong := messagingtest.Envelope(t, "a", 1, changed{N: -5}) // the table's CHECK refuses it
	messagingtest.Deliver(t, c, append([][]byte{wrong}, changes(t, "a", 2)...)...)
	desk := messaging.NewDeadLetters(pool, nil)
	open, err := desk.List(t.Context(), messaging.FailureFilter{State: "open"})
	if err != nil || len(open) != 1 {
		t.Fatalf("got %+v, %v", open, err)
	}
	if _, err := desk.Fix(t.Context(), open[0].FailureID, []byte(`{"event_id":""}`), mei); err == nil {
		t.Error("got no error for a correction that nobody could read")
	}
	for _, other := range [][2]string{{`"aggregate_id":"a"`, `"aggregate_id":"b"`}, {`"aggregate_type":"thing"`, `"aggregate_type":"order"`}, {`"aggregate_version":1`, `"aggregate_version":2`}} {
		elsewhere := bytes.Replace(wrong, []byte(other[0]), []byte(other[1]), 1)
		if _, err := desk.Fix(t.Context(), open[0].FailureID, elsewhere, mei); !errors.Is(err, messaging.ErrOtherAggregate) || bytes.Equal(elsewhere, wrong) {
			t.Errorf("%s: got %v, want ErrOtherAggregate", other[1], err)
		}
	}
	id, err := desk.Fix(t.Context(), open[0].FailureID, bytes.Replace(wrong, []byte(`"n":-5`), []byte(`"n":5`), 1), mei)
	if err != nil {
		t.Fatal(err)
	}
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, `SELECT count(*) FROM effect WHERE n = 5 AND seq < (SELECT seq FROM effect WHERE n = 2)`); got != 1 {
		t.Errorf("got %d corrected effects before the follower, want 1", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_inbox WHERE event_id = $1`, id); got != 1 {
		t.Errorf("got %d inbox rows of the new event, want 1", got)
	}
	old, err := desk.Show(t.Context(), open[0].FailureID)
	if err != nil || old.State != "discarded" || old.ReplacedBy == nil || *old.ReplacedBy != id || len(old.Actions) != 1 {
		t.Errorf("got %+v, %v", old, err)
	}
}

// What is refused for its data, its kind or its age blocks nothing, and says all
// the same which order it is about.
func TestACorrectionOfAnEventThatBlocksNothingIsOfTheSameAggregateToo(t *testing.T) {
	t.Parallel()
	good := messagingtest.Envelope(t, "a", 1, changed{N: 1})
	for code, wrong := range map[string][]byte{
		"bad_data":     bytes.Replace(good, []byte(`"n":1`), []byte(`"n":"one"`), 1),
		"unknown_kind": bytes.Replace(good, []byte("ThingChanged"), []byte("ThingWarped"), 1),
		"too_old":      good,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			pool := newEffects(t)
			c := newWriter(t, pool, "writer")
			if code == "too_old" {
				exec(t, pool, `UPDATE message_horizon SET inbox_since = now() + interval '1 hour'`)
			}
			messagingtest.Deliver(t, c, wrong)
			desk := messaging.NewDeadLetters(pool, nil)
			open, err := desk.List(t.Context(), messaging.FailureFilter{Code: code})
			if err != nil || len(open) != 1 {
				t.Fatalf("got %+v, %v", open, err)
			}
			if _, err := desk.Fix(t.Context(), open[0].FailureID, messagingtest.Envelope(t, "b", 1, changed{N: 1}), mei); !errors.Is(err, messaging.ErrOtherAggregate) {
				t.Errorf("got %v for a correction of another aggregate, want ErrOtherAggregate", err)
			}
			if _, err := desk.Fix(t.Context(), open[0].FailureID, good, mei); err != nil {
				t.Fatal(err)
			}
			messagingtest.RetryAll(t, pool, c)
			if got := count(t, pool, sqlCountEffects); got != 1 {
				t.Errorf("got %d effects, want that of the correction", got)
			}
		})
	}
}

func TestADiscardedEventLetsItsFollowersGo(t *testing.T) {
	t.Parallel()
	for _, everyVersion := range []bool{false, true} {
		pool := newEffects(t)
		c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{})
		messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
			if ev.Data.N == 2 {
				return messaging.Permanent(errors.New("bad"))
			}
			return write(ctx, tx, "writer", ev)
		})
		if everyVersion {
			c.EveryVersion()
		}
		messagingtest.Deliver(t, c, changes(t, "a", 1, 2, 3, 4)...)
		n, err := messaging.NewDeadLetters(pool, nil).Discard(t.Context(), messaging.FailureFilter{State: "open", AggregateID: "a"}, mei)
		if err != nil || n != 1 {
			t.Fatalf("got %d, %v", n, err)
		}
		messagingtest.RetryAll(t, pool, c)
		if got := count(t, pool, sqlCountEffects); got != 3 {
			t.Errorf("every version %v: got %d effects, want 3", everyVersion, got)
		}
		if got := count(t, pool, `SELECT count(*) FROM message_inbox WHERE result = 'discarded'`); got != 1 {
			t.Errorf("every version %v: got %d discarded inbox rows, want 1", everyVersion, got)
		}
	}
}

func TestConsecutiveVersionsThatAreDiscardedTogetherAreAllPassedOver(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if ev.Data.N == 2 {
			return messaging.Permanent(errors.New("bad"))
		}
		return write(ctx, tx, "writer", ev)
	})
	c.EveryVersion()
	messagingtest.Deliver(t, c, changes(t, "a", 1, 2, 3, 4)...)
	n, err := messaging.NewDeadLetters(pool, nil).Discard(t.Context(), messaging.FailureFilter{AggregateID: "a"}, mei)
	if err != nil || n != 3 {
		t.Fatalf("got %d, %v", n, err)
	}
	messagingtest.Deliver(t, c, changes(t, "a", 5)...)
	if got := count(t, pool, `SELECT count(*) FROM effect WHERE n = 5`); got != 1 {
		t.Errorf("got %d effects of the version after the discarded ones, want 1", got)
	}
}

func TestPayloadsAreErasedInTheirTimeAndTheRowsStay(t *testing.T) {
	t.Parallel()
	pool, c, _ := deadLetters(t, messaging.ConsumerConfig{})
	messagingtest.Deliver(t, c, append(changes(t, "a", 1), changes(t, "b", 1)...)...)
	desk := messaging.NewDeadLetters(pool, nil)
	if _, err := desk.Discard(t.Context(), messaging.FailureFilter{AggregateID: "a"}, mei); err != nil {
		t.Fatal(err)
	}
	if n, err := desk.ErasePayloads(t.Context(), time.Hour); err != nil || n != 0 {
		t.Errorf("got %d, %v before their time, want 0", n, err)
	}
	if n, err := desk.ErasePayloads(t.Context(), 0); err != nil || n != 1 {
		t.Errorf("got %d, %v, want the settled one erased", n, err)
	}
	erased, err := desk.List(t.Context(), messaging.FailureFilter{AggregateID: "a"})
	if err != nil || len(erased) != 1 {
		t.Fatalf("got %+v, %v", erased, err)
	}
	detail, err := desk.Show(t.Context(), erased[0].FailureID)
	if err != nil || detail.PayloadState != "erased" || len(detail.Actions) != 1 {
		t.Errorf("got %+v, %v", detail, err)
	}
}

// A row whose payload cannot be opened is shown as such and hides no other.
func TestARowThatCannotBeOpenedIsShownAsThat(t *testing.T) {
	t.Parallel()
	keys := &messaging.PayloadKeys{Current: "lost", Keys: map[string][]byte{"lost": make([]byte, 32)}}
	pool, c, _ := deadLetters(t, messaging.ConsumerConfig{PayloadKeys: keys})
	messagingtest.Deliver(t, c, changes(t, "a", 1)...)
	desk := messaging.NewDeadLetters(pool, nil)
	list, err := desk.List(t.Context(), messaging.FailureFilter{})
	if err != nil || len(list) != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	detail, err := desk.Show(t.Context(), list[0].FailureID)
	if err != nil || detail.PayloadState == "" || detail.Payload != nil {
		t.Errorf("got %+v, %v", detail, err)
	}
}
