package messaging_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// C39: a service whose durable is gone looks well in every other way: its database
// and its broker answer. It must not call itself ready, and it must go on by
// itself once the durable exists again, which delivers everything anew.
func TestADeletedDurableIsNotReadyAndTheOneMadeAgainRepeatsNothing(t *testing.T) {
	t.Parallel()
	pool, server := newEffects(t), natstest.New(t)
	ensureWriter(t, server)
	c := messaging.NewConsumer("writer", pool, connect(t, server, "writer"), messaging.ConsumerConfig{Lease: 2 * time.Second, Logger: quiet})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	background(t, c.Run)
	startRelay(t, separatePool(t, pool), connect(t, server, "relay"), messaging.RelayConfig{Logger: quiet})
	stageMany(t, pool, 10, 2)
	awaitCount(t, pool, 10, sqlCountEffects)
	if err := c.Ready(); err != nil {
		t.Errorf("got %v while all is well", err)
	}
	server.DeleteDurable(t, natsbroker.DefaultStream, "writer")
	eventually(t, 60*time.Second, func() string { return "it still says that it is ready" },
		func() bool { return errors.Is(c.Ready(), messaging.ErrSubscriptionGone) })
	stage(t, pool, messaging.New("thing-new", 1, changed{N: 99}))
	ensureWriter(t, server)
	eventually(t, 60*time.Second, func() string { return "it does not say that it is ready again" }, func() bool { return c.Ready() == nil })
	awaitCount(t, pool, 11, sqlCountEffects)
}

// A refusing subscriber has no durable for anybody, and counts who asks.
type refusing struct {
	messaging.Subscriber
	gone  atomic.Bool
	asked atomic.Int64
}

func (r *refusing) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Source, error) {
	if r.gone.Load() {
		r.asked.Add(1)
		return nil, messaging.ErrSubscriptionGone
	}
	return r.Subscriber.Subscribe(ctx, s)
}

// A consumer that tries again and again must not say so again and again: one
// line for each change is what somebody can read.
func TestAMissingDurableIsLoggedOnceAndNotWithEachRetry(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	broker := &refusing{Subscriber: membroker.New(messaging.Subscription{Durable: "writer", Kinds: []messaging.Kind{changed{}.Kind()}})}
	broker.gone.Store(true)
	var log lines
	c := messaging.NewConsumer("writer", pool, broker, messaging.ConsumerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, "writer", ev)
	})
	background(t, c.Run)
	eventually(t, 60*time.Second, func() string { return "it has not asked five times" }, func() bool { return broker.asked.Load() >= 5 })
	if got := log.count("consumer is active"); got != 0 {
		t.Errorf("got %d times that the consumer is active, want none without a durable", got)
	}
	broker.gone.Store(false)
	eventually(t, 60*time.Second, func() string { return "it does not say that it is active" }, func() bool { return log.count("consumer is active") == 1 })
	if got := log.count("the durable does not exist"); got != 1 {
		t.Errorf("got %d times that the durable does not exist, want 1", got)
	}
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}
