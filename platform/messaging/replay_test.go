package messaging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

func replayOf(events [][]byte) messaging.ReplayRequest {
	return messaging.ReplayRequest{Source: "outbox", Filter: json.RawMessage(`{"order":"a"}`), Events: events, PerSecond: 10_000, Actor: mei}
}

// runUntilDone runs the consumer until the replay has ended.
func runUntilDone(t *testing.T, pool *pgxpool.Pool, c *messaging.Consumer) messaging.Replay {
	t.Helper()
	stop := background(t, c.Run)
	defer stop()
	awaitCount(t, pool, 1, `SELECT count(*) FROM message_replay WHERE state = 'done'`)
	all, err := messaging.NewReplays(pool).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func TestAReplayAppliesWhatWasMissedAndNothingTwice(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	events := changes(t, "a", 1, 2, 3)
	messagingtest.Deliver(t, c, events[0], events[1])
	plan, err := c.PlanReplay(t.Context(), replayOf(events))
	if err != nil || plan.Expected["apply"] != 1 || plan.Expected["already_applied"] != 2 {
		t.Fatalf("got %v with %d external, %v", plan.Expected, plan.External, err)
	}
	id, _, err := c.CreateReplay(t.Context(), replayOf(append(events, []byte("<html>"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := messaging.NewReplays(pool).Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	done := runUntilDone(t, pool, c)
	if done.Done != 4 || !bytes.Contains(done.Report, []byte(`"without_effect": 0`)) {
		t.Errorf("got %+v with report %s", done, done.Report)
	}
	requireInOrder(t, pool, 3)
}

// C27: stopped or crashed in the middle, each item is done or open, and the
// rest goes on.
func TestAReplayThatWasStoppedGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	var events [][]byte
	for n := 1; n <= 300; n++ {
		events = append(events, changes(t, "a", n)...)
	}
	request := replayOf(events)
	request.PerSecond = 50
	id, _, err := c.CreateReplay(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	replays := messaging.NewReplays(pool)
	if err := replays.Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	stop := background(t, c.Run)
	eventually(t, 20*time.Second, func() string { return "nothing is replayed" },
		func() bool {
			return count(t, pool, `SELECT count(*) FROM message_replay_item WHERE done_at IS NOT NULL`) >= 50
		})
	stop()
	if err := replays.Stop(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	open := count(t, pool, `SELECT count(*) FROM message_replay_item WHERE done_at IS NULL`)
	if open == 0 || open > 250 {
		t.Errorf("got %d open items, want some", open)
	}
	if _, err := pool.Exec(t.Context(), `UPDATE message_replay SET per_second = 10000`); err != nil {
		t.Fatal(err)
	}
	if err := replays.Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	runUntilDone(t, pool, c)
	requireInOrder(t, pool, 300)
}

func TestALargeReplayNeedsASecondPerson(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{ReplayApproval: 2})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	id, plan, err := c.CreateReplay(t.Context(), replayOf(changes(t, "a", 1, 2, 3)))
	if err != nil || !plan.NeedsApproval {
		t.Fatalf("got %v with %d external, %v", plan.Expected, plan.External, err)
	}
	replays := messaging.NewReplays(pool)
	if err := replays.Start(t.Context(), id, mei); !errors.Is(err, messaging.ErrReplayState) {
		t.Errorf("got %v for a start without approval, want ErrReplayState", err)
	}
	if err := replays.Approve(t.Context(), id, mei); !errors.Is(err, messaging.ErrOwnApproval) {
		t.Errorf("got %v for one's own approval, want ErrOwnApproval", err)
	}
	if err := replays.Approve(t.Context(), id, messaging.Actor{Name: "jun", Reason: "checked with mei"}); err != nil {
		t.Fatal(err)
	}
	if err := replays.Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	if done := runUntilDone(t, pool, c); *done.ApprovedBy != "jun" {
		t.Errorf("got %+v", done)
	}
}

func TestAReplayWithEffectsOutsideNeedsPermission(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{ExternalEffects: true})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	events := changes(t, "a", 1, 2)
	messagingtest.Deliver(t, c, events[0])
	plan, err := c.PlanReplay(t.Context(), replayOf(events))
	if err != nil || plan.External != 1 || plan.Expected["external"] != 1 || plan.Expected["already_applied"] != 1 {
		t.Fatalf("got %v with %d external, %v", plan.Expected, plan.External, err)
	}
	id, _, err := c.CreateReplay(t.Context(), replayOf(events))
	if err != nil {
		t.Fatal(err)
	}
	if err := messaging.NewReplays(pool).Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	runUntilDone(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 1 {
		t.Errorf("got %d effects, want 1: the second was not allowed", got)
	}
}

// C48: what the inbox has forgotten would look new.
func TestAReplayOlderThanTheInboxRemembersIsRefused(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newWriter(t, pool, "writer")
	if _, err := pool.Exec(t.Context(), `UPDATE message_horizon SET inbox_since = now() + interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PlanReplay(t.Context(), replayOf(changes(t, "a", 1))); !errors.Is(err, messaging.ErrTooOld) {
		t.Errorf("got %v, want ErrTooOld", err)
	}
}

// Days may lie between a plan and its start, and retention goes on meanwhile.
func TestAReplayWhoseEventsWereForgottenSinceItWasPlannedIsNotApproved(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{ReplayApproval: 1})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	large, _, err := c.CreateReplay(t.Context(), replayOf(changes(t, "a", 1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	small, _, err := c.CreateReplay(t.Context(), replayOf(changes(t, "b", 1)))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE message_horizon SET inbox_since = now() + interval '1 hour'`)
	replays := messaging.NewReplays(pool)
	if err := replays.Approve(t.Context(), large, messaging.Actor{Name: "jun", Reason: "checked with mei"}); !errors.Is(err, messaging.ErrTooOld) {
		t.Errorf("approve: got %v, want ErrTooOld", err)
	}
	if err := replays.Start(t.Context(), small, mei); !errors.Is(err, messaging.ErrTooOld) {
		t.Errorf("start: got %v, want ErrTooOld", err)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_replay WHERE state IN ('awaiting_approval', 'ready')`); got != 2 {
		t.Errorf("got %d replays as they were, want 2", got)
	}
	if err := replays.Refuse(t.Context(), large, mei); err != nil { // what can do no harm stays possible
		t.Error(err)
	}
}

// The same while it runs. The plan says that the event was applied, and
// nothing else knows it any more.
func TestAReplayThatRunsDoesNotRepeatWhatTheInboxHasForgotten(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, idle{}, messaging.ConsumerConfig{ExternalEffects: true})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	events := changes(t, "a", 1, 2)
	messagingtest.Deliver(t, c, events...)
	id, _, err := c.CreateReplay(t.Context(), replayOf(events))
	if err != nil {
		t.Fatal(err)
	}
	if err := messaging.NewReplays(pool).Start(t.Context(), id, mei); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `DELETE FROM message_inbox`)
	exec(t, pool, `UPDATE message_horizon SET inbox_since = now() + interval '1 hour'`)
	runUntilDone(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 2 {
		t.Errorf("got %d effects, want the 2 that there were", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_replay_item WHERE result = 'too_old'`); got != 2 {
		t.Errorf("got %d items recorded as too old, want 2", got)
	}
}

// idle is a subscription on which nothing ever arrives.
type idle struct{}

func (idle) Subscribe(context.Context, messaging.Subscription) (messaging.Source, error) {
	return idle{}, nil
}
func (idle) Fetch(ctx context.Context, _ int) ([]messaging.Delivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (idle) Close() {}
