package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/services/order"
)

// The whole path, every part a process of its own and all on one machine: a
// signed callback over HTTP, the payment's transaction, relay, stream, points,
// their event, relay, stream, and the order's follow-up. The question is at
// which rate the effects still keep up.

func (s *stand) wholeGroup() group {
	return group{title: "the whole path", share: 4, cells: []cell{
		{name: "whole/sustained@always", what: "HTTP → order → relay → stream → points, largest rate without a growing backlog", once: true, run: s.wholePath},
	}}
}

// The rates that are tried: from firstRate upwards by half, and then between
// the last that was kept and the first that was not.
const (
	firstRate = 200
	halvings  = 3
)

func (s *stand) wholePath(ctx context.Context) (Reading, error) {
	path, err := s.openPath(ctx)
	if path != nil {
		defer path.close()
	}
	if err != nil {
		return nil, err
	}
	best, err := path.climb(ctx)
	if err != nil {
		return nil, err
	}
	return best, path.check(ctx)
}

// climb finds the largest rate that is kept.
func (p *wholeSystem) climb(ctx context.Context) (best Reading, err error) {
	if _, _, err := p.hold(ctx, firstRate); err != nil { // sessions plan their statements: not judged
		return nil, err
	}
	good, bad := 0, 0
	for halved := 0; bad == 0 || halved < halvings && bad-good > 20; {
		try := max(firstRate, good*3/2)
		if bad > 0 {
			try = (good + bad) / 2
			halved++
		}
		r, kept, err := p.hold(ctx, try)
		if err != nil {
			return nil, fmt.Errorf("at %d payments a second: %w", try, err)
		}
		if !kept {
			bad = try
			continue
		}
		good, best = try, r
		best[rate] = float64(try)
	}
	if best == nil {
		return nil, fmt.Errorf("%w: not even %d payments a second are kept up", errCheated, bad)
	}
	return best, nil
}

// wholeSystem is the running path.
type wholeSystem struct {
	s        *stand
	shop     *shop
	points   database
	children []*child
	closers  []func()
	pay      func(ctx context.Context, n int) error

	effects *clock // by position
	arrived atomic.Int64
	paid    int // orders that have been paid so far
	orders  int // that there are
}

// openPath starts everything and waits until it is ready.
func (s *stand) openPath(ctx context.Context) (*wholeSystem, error) {
	p := &wholeSystem{s: s, effects: newClock(), orders: int(s.hold.Seconds()) * 60_000}
	var err error
	if p.shop, err = s.openShop(ctx, s.always, p.orders, shopSetup{conns: 1}); err != nil {
		return nil, err
	}
	var drop func()
	if p.points, drop, err = s.newDatabase(ctx, "points"); err != nil {
		return p, err
	}
	p.closers = append(p.closers, drop)
	orders, pay, err := s.startOrder(ctx, s.always, p.shop.db)
	if orders != nil {
		p.children = append(p.children, orders)
	}
	if err != nil {
		return p, err
	}
	p.pay = pay
	for _, start := range []struct {
		program string
		env     []string
	}{
		{"points", []string{"HTTP_ADDR=127.0.0.1:0", "DATABASE_URL=" + p.points.dsn}},
		{"relay", []string{"RELAY_DATABASES=order=" + p.shop.db.dsn + " points=" + p.points.dsn}},
	} {
		c, err := s.startService(ctx, start.program, start.program, append(start.env, "NATS_URL="+s.always.url)...)
		if c != nil {
			p.children = append(p.children, c)
		}
		if err != nil {
			return p, err
		}
	}
	stop, err := s.always.onEffect(awarder, func(position uint64) {
		p.effects.note(strconv.FormatUint(position, 10))
		p.arrived.Add(1)
	})
	if err != nil {
		return p, err
	}
	p.closers = append(p.closers, stop)
	return p, s.always.awaitPull(ctx, awarder)
}

func (p *wholeSystem) close() {
	stopAll(p.children)
	for _, c := range p.closers {
		c()
	}
	p.shop.close()
}

// settleTime is how long the last effects may take when the load ends, at a
// rate that is sustained.
const settleTime = time.Second

// hold pays at a rate for a while. The rate is kept if every request found its
// turn in time, and if the effects have all arrived within settleTime of the
// last payment.
func (p *wholeSystem) hold(ctx context.Context, perSecond int) (r Reading, kept bool, err error) {
	n := int(float64(perSecond) * p.s.sizing.hold.Seconds())
	if p.paid+n > p.orders {
		return nil, false, errors.New("there are no more orders to pay")
	}
	from := p.paid
	p.paid += n
	committed := newClock()
	m, err := p.s.start(ctx, p.children...)
	if err != nil {
		return nil, false, err
	}
	behind, err := paced(ctx, perSecond, n, func(ctx context.Context, i int) error {
		err := p.pay(ctx, from+i)
		committed.note(orderID(from + i))
		return err
	})
	if err != nil {
		return nil, false, err
	}
	ended := time.Now()
	if err := poll(ctx, 5*time.Millisecond, func() (bool, error) { return p.arrived.Load() >= int64(p.paid), nil }); err != nil {
		return nil, false, fmt.Errorf("wait for the effects: %d of %d: %w", p.arrived.Load(), p.paid, err)
	}
	kept = behind < settleTime/4 && time.Since(ended) < settleTime
	if r, err = m.stop(ctx, n); err != nil {
		return nil, false, err
	}
	effects, err := p.effectTimes(ctx, from, n)
	if err != nil {
		return nil, false, err
	}
	took, err := effects.until(committed)
	if err != nil {
		return nil, false, err
	}
	for name, v := range distribution(took) {
		r[name] = v
	}
	return r, kept, nil
}

// effectTimes says when the points of n orders were committed, by order. The
// stream knows which position was whose.
func (p *wholeSystem) effectTimes(ctx context.Context, from, n int) (*clock, error) {
	wanted := make(map[string]bool, n)
	for i := range n {
		wanted[orderID(from+i)] = true
	}
	reader, err := p.s.always.js.OrderedConsumer(ctx, natsbroker.DefaultStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{order.OrderPaid{}.Kind().Filter()}})
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	messages, err := reader.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	defer messages.Stop()
	out := newClock()
	for len(out.at) < n {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		var env struct {
			AggregateID string `json:"aggregate_id"`
		}
		if err := json.Unmarshal(msg.Data(), &env); err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
		if !wanted[env.AggregateID] {
			continue
		}
		p.effects.mu.Lock()
		at, ok := p.effects.at[strconv.FormatUint(meta.Sequence.Stream, 10)]
		p.effects.mu.Unlock()
		if !ok {
			return nil, fmt.Errorf("%w: the points of %s were not committed", errCheated, env.AggregateID)
		}
		out.at[env.AggregateID] = at
	}
	return out, nil
}

// check makes sure that every paid order has its points, and that the order
// has learnt of them.
func (p *wholeSystem) check(ctx context.Context) error {
	ledger, err := p.points.open(ctx, 1)
	if err != nil {
		return err
	}
	defer ledger.Close()
	if n, err := single(ctx, ledger, `SELECT count(*) FROM points_entry`); err != nil || int(n) != p.paid {
		return errors.Join(errCheated, err, fmt.Errorf("%d of %d payments have their points", n, p.paid))
	}
	var told int64
	err = poll(ctx, 50*time.Millisecond, func() (bool, error) {
		var err error
		told, err = single(ctx, p.shop.pool, `SELECT count(*) FROM follow_up WHERE kind = 'points' AND state = 'done'`)
		return int(told) == p.paid, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d orders know of their points: %w", told, p.paid, err)
	}
	return nil
}
