package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
)

// What the parts can do on their own. Nobody who publishes events out of a
// database can be faster than these.

// limitCells are those of JetStream and of staging. They take turns with the
// drains that are measured against them.
func (s *stand) limitCells() []cell {
	return []cell{
		{name: "publish/async@default", what: "raw PublishAsync, 1024 in flight", run: s.publish(s.lazy, s.sizing.events, publishAsync)},
		{name: "publish/async@always", what: "raw PublishAsync, 1024 in flight", run: s.publish(s.always, s.slow, publishAsync)},
		{name: "publish/atomic@default", what: "raw atomic batches of 1000", run: s.publish(s.lazy, s.sizing.events, publishAtomic)},
		{name: "publish/atomic@always", what: "raw atomic batches of 1000", run: s.publish(s.always, s.sizing.events, publishAtomic)},
		{name: "fetch/ack@default", what: "pull and acknowledge each message", run: s.fetch(s.lazy)},
		{name: "fetch/ack@always", what: "pull and acknowledge each message", run: s.fetch(s.always)},
		{name: "stage/batches", what: "set-based insert of facts and queue, 1000 a transaction", run: s.stageAll},
	}
}

// inFlight is how many messages wait for their acknowledgement at once.
const inFlight = 1024

type publishFunc func(ctx context.Context, url string, messages []messaging.Message, connected func() error) error

// publish measures how fast messages are acknowledged.
func (s *stand) publish(b *broker, n int, how publishFunc) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		if err := b.reset(ctx); err != nil {
			return nil, err
		}
		n := min(n, len(s.events.messages))
		m, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		connected := func() error { m.restart(); return nil }
		if err := how(ctx, b.url, s.events.messages[:n], connected); err != nil {
			return nil, err
		}
		r, err := m.stop(ctx, n)
		if err != nil {
			return nil, err
		}
		if have, err := b.stored(ctx); err != nil || have != n {
			return nil, errors.Join(errCheated, err, fmt.Errorf("the stream holds %d of %d messages", have, n))
		}
		delete(r, walDrain) // no database is involved
		return r, nil
	}
}

// natsMessage has the headers that the product's messages have.
func natsMessage(m *messaging.Message) *nats.Msg {
	return &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{
		jetstream.MsgIDHeader: {m.ID.String()}, jetstream.ExpectedStreamHeader: {natsbroker.DefaultStream}}}
}

// publishAsync keeps inFlight messages on the way with one client.
func publishAsync(ctx context.Context, url string, messages []messaging.Message, connected func() error) error {
	nc, js, err := connect(url, 2*inFlight)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := connected(); err != nil {
		return err
	}
	waiting := make([]jetstream.PubAckFuture, inFlight)
	for i := range messages {
		if err := await(ctx, waiting[i%inFlight]); err != nil {
			return err
		}
		if waiting[i%inFlight], err = js.PublishMsgAsync(natsMessage(&messages[i])); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	for _, future := range waiting {
		if err := await(ctx, future); err != nil {
			return err
		}
	}
	return nil
}

// await waits for one acknowledgement; nil has none to wait for.
func await(ctx context.Context, future jetstream.PubAckFuture) error {
	if future == nil {
		return nil
	}
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		return fmt.Errorf("publish: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// publishAtomic sends one batch after the other.
func publishAtomic(ctx context.Context, url string, messages []messaging.Message, connected func() error) error {
	nc, js, err := connect(url, inFlight)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := connected(); err != nil {
		return err
	}
	for first := 0; first < len(messages); first += stageBatch {
		batch := make([]*nats.Msg, 0, stageBatch)
		for i := first; i < min(first+stageBatch, len(messages)); i++ {
			batch = append(batch, natsMessage(&messages[i]))
		}
		if _, err := jetstreamext.PublishMsgBatch(ctx, js, batch, jetstreamext.BatchFlowControl{}); err != nil {
			return fmt.Errorf("publish batch: %w", err)
		}
	}
	return nil
}

func connect(url string, pending int) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to nats: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(pending))
	return nc, js, err
}

// preload puts messages on a fresh stream, outside of anybody's time.
func (b *broker) preload(ctx context.Context, messages []messaging.Message, subs ...messaging.Subscription) error {
	if err := b.reset(ctx, subs...); err != nil {
		return err
	}
	return publishAtomic(ctx, b.url, messages, func() error { return nil })
}

// reader is the subscription of the cells that consume without this project.
var reader = messaging.Subscription{Durable: "bench-reader", Kinds: []messaging.Kind{orderPaid{}.Kind()}}

// fetch measures how fast one client can take messages and acknowledge each.
func (s *stand) fetch(b *broker) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		n := len(s.events.messages)
		if err := b.preload(ctx, s.events.messages, reader); err != nil {
			return nil, err
		}
		consumer, err := b.js.Consumer(ctx, natsbroker.DefaultStream, reader.Durable)
		if err != nil {
			return nil, err
		}
		m, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		messages, err := consumer.Messages(jetstream.PullMaxMessages(2000))
		if err != nil {
			return nil, err
		}
		defer messages.Stop()
		for range n {
			msg, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				return nil, fmt.Errorf("fetch: %w", err)
			}
			if err := msg.Ack(); err != nil {
				return nil, fmt.Errorf("acknowledge: %w", err)
			}
		}
		if err := b.awaitConsumed(ctx, reader.Durable); err != nil {
			return nil, err
		}
		r, err := m.stop(ctx, n)
		delete(r, walDrain)
		return r, err
	}
}

// stageAll measures the insert of facts and queue by one session.
func (s *stand) stageAll(ctx context.Context) (Reading, error) {
	db, drop, err := s.newDatabase(ctx, "messaging")
	if err != nil {
		return nil, err
	}
	defer drop()
	pool, err := db.open(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := s.checkpoint(ctx); err != nil {
		return nil, err
	}
	m, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.events.stage(ctx, pool); err != nil {
		return nil, err
	}
	r, err := m.stop(ctx, len(s.events.messages))
	if err != nil {
		return nil, err
	}
	if n, err := completeOf(ctx, pool, `SELECT count(*) FROM message_outbox_pending p JOIN message_outbox o USING (event_id)`); err != nil || int(n) != len(s.events.messages) {
		return nil, errors.Join(errCheated, err, fmt.Errorf("%d events are staged", n))
	}
	return r, nil
}
