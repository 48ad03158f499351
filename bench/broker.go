package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
)

// A broker is one of the stand's nats-servers.
type broker struct {
	sync    string // always, default
	url     string
	store   string
	process *child
	nc      *nats.Conn
	js      jetstream.JetStream
}

// startBroker starts a nats-server from its own module's main, with JetStream
// on disk and nothing else set.
func (s *stand) startBroker(ctx context.Context, sync string) (*broker, error) {
	client, err := freeAddress()
	if err != nil {
		return nil, err
	}
	monitor, err := freeAddress()
	if err != nil {
		return nil, err
	}
	b := &broker{sync: sync, url: "nats://" + client, store: filepath.Join(s.dir, "nats-"+sync)}
	if err := os.RemoveAll(b.store); err != nil {
		return nil, err
	}
	interval := ""
	if sync != "default" {
		interval = "sync_interval: " + sync
	}
	config := b.store + ".conf"
	text := fmt.Sprintf("server_name: bench-%s\nlisten: %s\nhttp: %s\njetstream {\n  store_dir: %s\n  max_file_store: 64GB\n  %s\n}\n",
		sync, client, monitor, strconv.Quote(b.store), interval)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure nats-server: %w", err)
	}
	if b.process, err = s.spawn("nats-"+sync, "nats-server", nil, "--config", config); err != nil {
		return nil, err
	}
	if err := b.process.awaitReady(ctx, "http://"+monitor+"/healthz"); err != nil {
		return b, err
	}
	if b.nc, err = nats.Connect(b.url); err != nil {
		return b, fmt.Errorf("connect to nats: %w", err)
	}
	b.js, err = jetstream.New(b.nc)
	return b, err
}

// reset makes the stream anew, as this project deploys it.
func (b *broker) reset(ctx context.Context, subs ...messaging.Subscription) error {
	if err := b.js.DeleteStream(ctx, natsbroker.DefaultStream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete stream: %w", err)
	}
	topology := natsbroker.Topology{MaxBytes: 32 << 30, Subscriptions: subs}
	var last error
	err := poll(ctx, 100*time.Millisecond, func() (bool, error) { // the old store is removed in the background
		last = natsbroker.EnsureTopology(ctx, b.url, topology)
		return last == nil, nil
	})
	return errors.Join(err, last)
}

// stored is how many messages the stream holds.
func (b *broker) stored(ctx context.Context) (int, error) {
	stream, err := b.js.Stream(ctx, natsbroker.DefaultStream)
	if err != nil {
		return 0, fmt.Errorf("look at the stream: %w", err)
	}
	return int(stream.CachedInfo().State.Msgs), nil
}

// awaitStored waits until the stream holds n messages.
func (b *broker) awaitStored(ctx context.Context, n int) error {
	have := 0
	err := poll(ctx, 5*time.Millisecond, func() (done bool, err error) {
		have, err = b.stored(ctx)
		return have >= n, err
	})
	if err != nil {
		return fmt.Errorf("the stream holds %d of %d messages: %w", have, n, err)
	}
	return nil
}

// durable is the state of a subscription.
func (b *broker) durable(ctx context.Context, name string) (*jetstream.ConsumerInfo, error) {
	c, err := b.js.Consumer(ctx, natsbroker.DefaultStream, name)
	if err != nil {
		return nil, fmt.Errorf("look at durable %s: %w", name, err)
	}
	return c.CachedInfo(), nil
}

// awaitDelivery waits until a durable has delivered something.
func (b *broker) awaitDelivery(ctx context.Context, name string) error {
	return poll(ctx, time.Millisecond, func() (bool, error) {
		info, err := b.durable(ctx, name)
		return err == nil && info.Delivered.Consumer > 0, err
	})
}

// awaitConsumed waits until a durable has nothing left to deliver and nothing
// unanswered.
func (b *broker) awaitConsumed(ctx context.Context, name string) error {
	return poll(ctx, 10*time.Millisecond, func() (bool, error) {
		info, err := b.durable(ctx, name)
		if err != nil {
			return false, err
		}
		return info.NumPending == 0 && info.NumAckPending == 0, nil
	})
}
