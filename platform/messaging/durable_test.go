package messaging_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// A service whose durable is gone looks well in every other way: its database
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
