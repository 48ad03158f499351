package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/services/order"
	"orderpaid/services/points"
)

// How long one event takes when there is little to do: two hundred payments a
// second, from the return of the commit.

// pacedRate is in events per second.
const pacedRate = 200

func (s *stand) pacedGroup() group {
	return group{title: "one event at 200 a second", cells: []cell{
		{name: "paced/publish@always", what: "a bare publish and its acknowledgement", run: s.pacedPublish(s.always)},
		{name: "paced/publish@default", what: "a bare publish and its acknowledgement", run: s.pacedPublish(s.lazy)},
		{name: "paced/commit-ack@always", what: "commit of a payment → acknowledged by the stream", run: s.pacedPay(s.always, false)},
		{name: "paced/commit-ack@default", what: "commit of a payment → acknowledged by the stream", run: s.pacedPay(s.lazy, false)},
		{name: "paced/commit-effect@always", what: "commit of a payment → points committed", run: s.pacedPay(s.always, true)},
	}}
}

// concurrent is how many paced calls may be under way at once.
const concurrent = 64

// paced calls do for each number at the given rate, whatever the calls take,
// and waits for all of them. behind is how late the last call began.
func paced(ctx context.Context, perSecond, n int, do func(ctx context.Context, i int) error) (behind time.Duration, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrent)
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		if early := time.Until(due); early > 0 {
			time.Sleep(early)
		}
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return do(ctx, i) })
		behind = max(0, time.Since(due))
	}
	return behind, g.Wait()
}

// pacedPublish is the floor: the same messages, without a database.
func (s *stand) pacedPublish(b *broker) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		if err := b.reset(ctx); err != nil {
			return nil, err
		}
		n := int(pacedRate * s.sizing.paced.Seconds())
		took := make([]time.Duration, n)
		m, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		_, err = paced(ctx, pacedRate, n, func(ctx context.Context, i int) error {
			began := time.Now()
			_, err := b.js.PublishMsg(ctx, natsMessage(&s.events.messages[i%len(s.events.messages)]))
			took[i] = time.Since(began)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		return m.withTimes(ctx, took)
	}
}

// withTimes stops the meter and adds the distribution. The rate was given, so
// it says nothing.
func (m *meter) withTimes(ctx context.Context, took []time.Duration) (Reading, error) {
	r, err := m.stop(ctx, len(took))
	if err != nil {
		return nil, err
	}
	delete(r, rate)
	for name, v := range distribution(took) {
		r[name] = v
	}
	return r, nil
}

// A clock notes when things happened, by key.
type clock struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newClock() *clock { return &clock{at: map[string]time.Time{}} }

// note keeps the first time.
func (c *clock) note(key string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.at[key]; !again {
		c.at[key] = now
	}
}

func (c *clock) has(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.at) >= n
}

// until returns how long it took from each time in from to the same key here.
// A negative time is zero: the two were noted by different goroutines.
func (c *clock) until(from *clock) ([]time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := make([]time.Duration, 0, len(from.at))
	for key, began := range from.at {
		ended, ok := c.at[key]
		if !ok {
			return nil, fmt.Errorf("%w: %s was committed and has not arrived", errCheated, key)
		}
		took = append(took, max(0, ended.Sub(began)))
	}
	return took, nil
}

// ackClock is a publisher that notes when the broker has acknowledged which
// aggregate, and at which position.
type ackClock struct {
	messaging.Publisher
	acked *clock
	mu    sync.Mutex
	keys  map[uint64]string // by position
}

func newAckClock(pub messaging.Publisher) *ackClock {
	return &ackClock{Publisher: pub, acked: newClock(), keys: map[uint64]string{}}
}

func (a *ackClock) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	receipts := a.Publisher.Publish(ctx, messages)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range receipts {
		if r.Err == nil {
			a.acked.note(messages[i].Key)
			a.keys[r.Sequence] = messages[i].Key
		}
	}
	return receipts
}

// pacedPay pays at the given rate through the order service, with a relay in
// this process, and follows each event to its acknowledgement or, with a
// points process running, to its effect.
func (s *stand) pacedPay(b *broker, toEffect bool) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		n := int(pacedRate * s.sizing.paced.Seconds())
		shop, err := s.openShop(ctx, b, n, shopSetup{conns: 16, wake: true})
		if err != nil {
			return nil, err
		}
		defer shop.close()
		var processes []*child
		effects := newClock()
		if toEffect {
			service, stop, err := s.startPoints(ctx, b)
			if err != nil {
				return nil, err
			}
			defer stop()
			processes = append(processes, service)
		}
		acks, stopRelay, err := shop.relay(ctx)
		if err != nil {
			return nil, err
		}
		defer stopRelay()
		if toEffect {
			stop, err := b.onEffect(awarder, func(position uint64) { effects.note(strconv.FormatUint(position, 10)) })
			if err != nil {
				return nil, err
			}
			defer stop()
		}
		committed := newClock()
		m, err := s.start(ctx, processes...)
		if err != nil {
			return nil, err
		}
		if _, err := paced(ctx, pacedRate, n, func(ctx context.Context, i int) error {
			err := shop.pay(ctx, i)
			committed.note("order/" + orderID(i))
			return err
		}); err != nil {
			return nil, err
		}
		ended := acks.acked
		if toEffect {
			if err := poll(ctx, 5*time.Millisecond, func() (bool, error) { return effects.has(n), nil }); err != nil {
				return nil, fmt.Errorf("wait for the effects: %w", err)
			}
			ended = acks.byKey(effects)
		}
		if err := poll(ctx, 5*time.Millisecond, func() (bool, error) { return ended.has(n), nil }); err != nil {
			return nil, fmt.Errorf("wait for the acknowledgements: %w", err)
		}
		took, err := ended.until(committed)
		if err != nil {
			return nil, err
		}
		return m.withTimes(ctx, took)
	}
}

// byKey turns times by position into times by aggregate.
func (a *ackClock) byKey(positions *clock) *clock {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := newClock()
	for position, key := range a.keys {
		if at, ok := positions.at[strconv.FormatUint(position, 10)]; ok {
			out.at[key] = at
		}
	}
	return out
}

// awarder is the durable of the points service.
const awarder = "points-awarder"

// onEffect calls done with the position of each message that a durable's
// consumer acknowledges, which it does right after the commit. The
// acknowledgement is a message like any other, so it can be listened to.
func (b *broker) onEffect(durable string, done func(position uint64)) (stop func(), err error) {
	sub, err := b.nc.Subscribe("$JS.ACK.>", func(m *nats.Msg) {
		tokens := strings.Split(m.Subject, ".")
		// $JS.ACK.<stream>.<durable>.<deliveries>.<position>.…, and since
		// version 2 of the subject a domain and an account in front of these.
		at := 2
		if len(tokens) > 9 {
			at = 4
		}
		if len(tokens) < at+4 || tokens[at+1] != durable {
			return
		}
		if position, err := strconv.ParseUint(tokens[at+3], 10, 64); err == nil && string(m.Data) == "+ACK" {
			done(position)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen for acknowledgements: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, b.nc.Flush()
}

// startPoints starts the points service on a database of its own.
func (s *stand) startPoints(ctx context.Context, b *broker) (service *child, stop func(), err error) {
	db, drop, err := s.newDatabase(ctx, "points")
	if err != nil {
		return nil, nil, err
	}
	service, err = s.startService(ctx, "points", "points", "HTTP_ADDR=127.0.0.1:0", "DATABASE_URL="+db.dsn, "NATS_URL="+b.url)
	stop = func() {
		if service != nil {
			service.stop()
		}
		drop()
	}
	if err == nil {
		err = b.awaitPull(ctx, awarder)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return service, stop, nil
}

// awaitPull waits until a consumer has asked for messages.
func (b *broker) awaitPull(ctx context.Context, durable string) error {
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
		info, err := b.durable(ctx, durable)
		return err == nil && info.NumWaiting > 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for %s to pull: %w", durable, err)
	}
	return nil
}

// relay runs a relay for the shop in this process, on a pool and a connection
// of its own.
func (sh *shop) relay(ctx context.Context) (acks *ackClock, stop func(), err error) {
	pool, err := sh.db.open(ctx, 3)
	if err != nil {
		return nil, nil, err
	}
	conn, err := sh.broker.connectProduct(ctx, "relay")
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	stop, acks, err = runRelay(ctx, pool, conn)
	if err != nil {
		conn.Close()
		pool.Close()
		return nil, nil, err
	}
	inner := stop
	return acks, func() { inner(); conn.Close(); pool.Close() }, nil
}

func runRelay(ctx context.Context, pool *pgxpool.Pool, conn *natsbroker.Broker) (stop func(), acks *ackClock, err error) {
	wake, stopWaking, err := conn.OnWake(outboxName)
	if err != nil {
		return nil, nil, err
	}
	acks = newAckClock(conn)
	relay, err := messaging.NewRelay(pool, acks, messaging.RelayConfig{Database: outboxName, Wake: wake, Logger: quiet()})
	if err != nil {
		stopWaking()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = relay.Run(ctx) // it returns nil
	}()
	stop = func() { cancel(); <-done; stopWaking() }
	err = poll(ctx, 20*time.Millisecond, func() (bool, error) {
		n, err := single(ctx, pool, `SELECT count(*) FROM relay_lease WHERE lease_until > now()`)
		return n == messaging.Shards, err
	})
	if err != nil {
		stop()
		return nil, nil, err
	}
	return stop, acks, nil
}

// allSubscriptions are those of the services that take part.
func allSubscriptions() []messaging.Subscription {
	return append(order.Subscriptions(), points.Subscriptions()...)
}
