package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Consumer applies the events of one durable subscription to one database,
// each with exactly one effect there.
//
// It reads a group of events, opens one transaction, writes their inbox rows,
// calls the handlers with that transaction, commits, and only then
// acknowledges. So a handler cannot forget to de-duplicate, and
// acknowledgement, retry and dead letters are not its business; doc.go lists
// what each return value leads to.
//
// Of all processes that run the same consumer on the same database, one is
// active at a time: measured, three that pull one durable deadlock with each
// other, reverse events and take seven times as long.
type Consumer struct {
	name         string
	pool         *pgxpool.Pool
	sub          Subscriber
	cfg          ConsumerConfig
	handlers     map[string]handler // by Kind.String
	kinds        []Kind
	everyVersion bool
	wide         bool
	place        *consumerPlace
	circuit      *circuit
	handedBack   handedBack
	work         sync.Mutex  // held while a transaction of this consumer is under way
	invalid      error       // of the settings
	lost         atomic.Bool // the durable does not exist
	troubled     atomic.Bool // there may be unresolved failures that block an aggregate
	meters       consumerMeters
	tracing      tracing
}

// NewConsumer returns a consumer that reads the durable of its own name. The
// name is its identity: the inbox remembers by it, so a consumer that changes
// its name applies everything again. Register handlers before Run.
//
// Settings that [ConsumerConfig.Check] refuses are what Run, Apply and RetryDue
// return. It panics if the metrics cannot be made, which only a programming
// error can cause.
func NewConsumer(name string, pool *pgxpool.Pool, sub Subscriber, cfg ConsumerConfig) *Consumer {
	invalid := cfg.Check()
	if invalid != nil {
		invalid = fmt.Errorf("consumer %s: %w", name, invalid)
	}
	cfg = cfg.withDefaults(name)
	meters, err := newConsumerMeters(cfg.Meters, name)
	if err != nil {
		panic(fmt.Sprintf("consumer %s: %v", name, err))
	}
	return &Consumer{name: name, invalid: invalid, pool: pool, sub: sub, cfg: cfg, handlers: map[string]handler{}, meters: meters,
		tracing: newTracing(cfg.Tracers, cfg.TraceParent), place: newConsumerPlace(pool, name, cfg.Replica, cfg.Lease), circuit: newCircuit(cfg)}
}

// EveryVersion makes the consumer apply each aggregate's events strictly by
// aggregate_version, as a projection must: a version that is behind is
// recorded as stale and not applied, the next one is applied, and one that
// skips a version waits until the missing one has come. The subscription must
// then hold every kind of the aggregate, or the filtered ones look missing.
func (c *Consumer) EveryVersion() { c.everyVersion = true }

// Wide lets the broker choose by one pattern that covers all kinds of the
// consumer, and the process drop what it has no handler for. With one pattern
// for each kind the server looks at every subject of the stream for every
// message: 100 µs against 14, measured, and a tenth of the rate. What it costs:
// the process receives, and the server counts as pending, what it does not
// want. A consumer that must not see other kinds does without.
func (c *Consumer) Wide() { c.wide = true }

// Subscription returns what the consumer reads, for whoever owns the topology.
func (c *Consumer) Subscription() Subscription {
	return Subscription{Durable: c.name, Kinds: c.kinds, Wide: c.wide}
}

// A handler is one registered function, without its type parameter.
type handler interface {
	decode(data json.RawMessage) (any, error) // an error is permanent
	apply(ctx context.Context, tx pgx.Tx, items []*item) error
}

// Handle registers fn for the kind of T: one call per event, in order. The
// events still share a transaction with others, so fn must do nothing outside
// tx: what it did there would happen again when the group is repeated.
// It panics if the kind has a handler already.
func Handle[T Payload](c *Consumer, fn func(ctx context.Context, tx pgx.Tx, ev Event[T]) error) {
	HandleBatch(c, func(ctx context.Context, tx pgx.Tx, evs []Event[T]) error {
		for _, ev := range evs {
			if err := fn(ctx, tx, ev); err != nil {
				return fmt.Errorf("event %s: %w", ev.EventID, err)
			}
		}
		return nil
	})
}

// HandleBatch registers fn for the kind of T, called with up to a whole group
// of events, in order, none of them seen before. For hot paths: one set-based
// statement for a thousand events costs little more than one for a single one.
// An error counts for all of them: the group is then split until the event at
// fault stands alone.
// It panics if the kind has a handler already.
func HandleBatch[T Payload](c *Consumer, fn func(ctx context.Context, tx pgx.Tx, evs []Event[T]) error) {
	var zero T
	kind := zero.Kind()
	if _, exists := c.handlers[kind.String()]; exists {
		panic(fmt.Sprintf("consumer %s: %s has two handlers", c.name, kind))
	}
	c.handlers[kind.String()] = typedHandler[T](fn)
	c.kinds = append(c.kinds, kind)
}

type typedHandler[T Payload] func(ctx context.Context, tx pgx.Tx, evs []Event[T]) error

func (h typedHandler[T]) decode(data json.RawMessage) (any, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	return v, nil
}

func (h typedHandler[T]) apply(ctx context.Context, tx pgx.Tx, items []*item) error {
	evs := make([]Event[T], len(items))
	for i, it := range items {
		evs[i] = Event[T]{Meta: it.env.Meta, Data: it.data.(T), result: &it.result}
	}
	return ofHandler(tx, h(ctx, tx, evs))
}

// Run consumes until ctx is done; the group that is then in work is finished
// and acknowledged, the place is given up, and Run returns nil. While the
// database or the broker is away it waits and reads nothing. It does not begin
// with settings that cannot be used.
func (c *Consumer) Run(ctx context.Context) error {
	if c.invalid != nil {
		return c.invalid
	}
	defer c.place.leave(context.WithoutCancel(ctx))
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := c.place.take(ctx)
		if err == nil {
			err = c.consume(ctx)
		}
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		if time.Since(began) > time.Minute { // it went well meanwhile: this is another outage
			failures = 0
		}
		c.heldUp(failures, err)
		wait(ctx, backoff(failures, 100*time.Millisecond, 5*time.Second))
		failures++
	}
	return nil
}

// heldUp tells why nothing is consumed. A durable that is gone does not come
// back by itself, and everything else looks well meanwhile: that is said
// louder, and by [Consumer.Ready].
func (c *Consumer) heldUp(failures int, err error) {
	if !errors.Is(err, ErrSubscriptionGone) {
		if failures < 2 || failures%12 == 0 { // then about twice a minute
			c.cfg.Logger.Warn("consumer is held up", "failures", failures, "error", err)
		}
		return
	}
	if c.lost.Swap(true) && failures%12 != 0 { // about once a minute
		return
	}
	c.cfg.Logger.Error("the durable does not exist: nothing is consumed until shopctl topology apply makes it again", "error", err)
}

// Ready returns [ErrSubscriptionGone] while this replica is the active one and
// its durable does not exist, and nil otherwise. A database or a broker that is
// away is for their own checks.
func (c *Consumer) Ready() error {
	if c.lost.Load() {
		return fmt.Errorf("durable %s: %w", c.name, ErrSubscriptionGone)
	}
	return nil
}

// consume reads and applies groups for as long as this replica is the active
// one. It returns nil when the place was lost.
func (c *Consumer) consume(ctx context.Context) error {
	source, err := c.sub.Subscribe(ctx, c.Subscription())
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if c.lost.Swap(false) { // a new durable begins at the first event: the inbox knows what was applied
		c.cfg.Logger.Info("the durable exists again")
	}
	c.cfg.Logger.Info("consumer is active", "replica", c.cfg.Replica) // not before: without a durable each retry would say so
	if s, ok := source.(interface{ AckWait() time.Duration }); ok && s.AckWait() <= c.cfg.HandlerTimeout {
		c.cfg.Logger.Warn("the durable delivers events again while their handler may still be at work: harmless, and work done twice",
			"ack_wait", s.AckWait(), "handler_timeout", c.cfg.HandlerTimeout)
	}
	defer source.Close() // what was fetched ahead goes back at once
	active, stop := c.place.keep(ctx)
	c.troubled.Store(true) // until the first look at the table
	var beside sync.WaitGroup
	beside.Go(func() { c.retryLoop(active) })
	beside.Go(func() { c.replayLoop(active) })
	defer beside.Wait()
	defer stop()
	groups := make(chan openedGroup) // unbuffered: one group is decoded while one is applied
	beside.Go(func() { c.fetch(active, source, groups) })
	for g := range groups {
		if g.err == nil {
			if g.err = c.apply(active, g); g.err != nil {
				g.handBack()
			}
		}
		switch {
		case active.Err() != nil || errors.Is(g.err, errPlaceLost):
			return nil
		case g.err != nil:
			return g.err
		}
	}
	return nil
}

// fetch reads and decodes groups, one ahead of the one that is applied: the
// processor works on the next while the database works on this one.
func (c *Consumer) fetch(ctx context.Context, source Source, groups chan<- openedGroup) {
	defer close(groups)
	for {
		if left := c.circuit.left(); left > 0 {
			wait(ctx, left)
		}
		deliveries, err := source.Fetch(ctx, c.cfg.Group)
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("fetch: %w", err)
		}
		g := openedGroup{err: err}
		if err == nil {
			g = c.open(deliveries)
		}
		select {
		case <-ctx.Done():
			for _, d := range deliveries { // nobody will apply them here: another replica can, at once
				_ = d.Retry(0) // if that is lost too, they come after the acknowledgement wait
			}
			return
		case groups <- g:
		}
		if err != nil {
			return
		}
	}
}

// Apply processes one group of deliveries now, as the active replica: it takes
// the consumer's place for that time, and waits for it while another has it.
// Replays and tests use it; they so run through the same inbox as everything.
func (c *Consumer) Apply(ctx context.Context, deliveries ...Delivery) error {
	if c.invalid != nil {
		return c.invalid
	}
	if err := c.place.take(ctx); err != nil {
		return err
	}
	defer c.place.leave(context.WithoutCancel(ctx))
	c.troubled.Store(true)
	return c.apply(ctx, c.open(deliveries))
}

// RetryDue works once on what is due among the recorded failures, as the
// active replica. It reports whether there was anything; what that releases
// may be due at once. Run does this all the time; tools and tests call it.
func (c *Consumer) RetryDue(ctx context.Context) (busy bool, err error) {
	if c.invalid != nil {
		return false, c.invalid
	}
	if err := c.place.take(ctx); err != nil {
		return false, err
	}
	defer c.place.leave(context.WithoutCancel(ctx))
	return c.retryDue(ctx)
}

// wait sleeps for d or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
