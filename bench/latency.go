package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// How long one event takes when there is little to do: two hundred payments a
// second, from the return of the commit.

// pacedRate is in events per second.
const pacedRate = 200

func (s *stand) pacedGroup() group {
	return group{title: "one event at 200 a second", share: 6, cells: []cell{
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

// warmUp is how many payments come before those that are measured: a session
// plans each of its statements the first five times, and the first groups of a
// consumer wait for that.
const warmUp = 200

// pacedPay pays at the given rate through the order service, with a relay in
// this process, and follows each event to its acknowledgement or, with a
// points process running, to its effect.
func (s *stand) pacedPay(b *broker, toEffect bool) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		n := int(pacedRate * s.sizing.paced.Seconds())
		shop, err := s.openShop(ctx, b, warmUp+n, shopSetup{conns: 16, wake: true})
		if err != nil {
			return nil, err
		}
		defer shop.close()
		var processes []*child
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
		arrivals := func() *clock { return acks.acked }
		if toEffect {
			effects := newClock()
			stop, err := b.onEffect(awarder, func(position uint64) { effects.note(strconv.FormatUint(position, 10)) })
			if err != nil {
				return nil, err
			}
			defer stop()
			arrivals = func() *clock { return acks.byKey(effects) }
		}
		return s.follow(ctx, shop, n, arrivals, processes)
	}
}

// follow pays n orders and measures from each commit to the event's arrival.
func (s *stand) follow(ctx context.Context, shop *shop, n int, arrivals func() *clock, processes []*child) (Reading, error) {
	payAndWait := func(first, n int, committed *clock) error {
		if _, err := paced(ctx, pacedRate, n, func(ctx context.Context, i int) error {
			err := shop.pay(ctx, first+i)
			committed.note("order/" + orderID(first+i))
			return err
		}); err != nil {
			return err
		}
		if err := poll(ctx, 10*time.Millisecond, func() (bool, error) { return arrivals().has(first + n), nil }); err != nil {
			return fmt.Errorf("wait for the last events: %w", err)
		}
		return nil
	}
	if err := payAndWait(0, warmUp, newClock()); err != nil {
		return nil, err
	}
	m, err := s.start(ctx, processes...)
	if err != nil {
		return nil, err
	}
	committed := newClock()
	if err := payAndWait(warmUp, n, committed); err != nil {
		return nil, err
	}
	took, err := arrivals().until(committed)
	if err != nil {
		return nil, err
	}
	return m.withTimes(ctx, took)
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
