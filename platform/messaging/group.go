package messaging

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/faults"
	"orderpaid/platform/postgres"
)

// An item is one event of a group on its way through a transaction.
type item struct {
	deliveries []Delivery // more than one if the group holds the event twice
	env        Envelope
	kind       string // its name, OrderPaid.v1
	handler    handler
	data       any
	result     string // for the inbox row
	replay     string // the replay that brought it, if one did
	skipped    bool   // recorded, but no handler is called: stale or expired
	waiting    bool   // a version is missing before it
}

// aggregate is the key that order is kept by.
func (it *item) aggregate() aggregateKey {
	return aggregateKey{it.env.AggregateType, it.env.AggregateID}
}

type aggregateKey struct{ Type, ID string }

// apply brings every delivery to its end: applied, or recorded as a failure,
// and then acknowledged. An error means that the rest was left to the broker,
// which will deliver it again.
func (c *Consumer) apply(ctx context.Context, g openedGroup) error {
	c.work.Lock() // one transaction at a time: the stream's groups and the retries
	defer c.work.Unlock()
	started := time.Now()
	err := c.applyGroup(ctx, g)
	c.meters.group(ctx, g.deliveries, g.redelivered, time.Since(started))
	return err
}

func (c *Consumer) applyGroup(ctx context.Context, g openedGroup) error {
	ctx, span := c.processing(ctx, g.items)
	defer span.End()
	for _, u := range g.unusable {
		// Not blocking: fields of what cannot be read are no reason to stop an aggregate.
		if err := c.settle(ctx, deadLetter(u.delivery, u.env, u.err, false), u.delivery); err != nil {
			return err
		}
	}
	return c.run(ctx, g.items)
}

// An openedGroup is what one Fetch returned, decoded.
type openedGroup struct {
	items       []*item
	unusable    []unusable
	deliveries  int   // of both, copies included
	redelivered int   // of these, not the first of their message
	err         error // of the Fetch
}

// handBack returns what was not answered to the broker, so that whoever is the
// active replica now has it at once and not after the acknowledgement wait.
// Deliveries that were answered refuse a second answer.
func (g openedGroup) handBack() {
	for _, it := range g.items {
		for _, d := range it.deliveries {
			_ = d.Retry(0)
		}
	}
	for _, u := range g.unusable {
		_ = u.delivery.Retry(0)
	}
}

// unusable is a delivery that can be neither read nor handled, ever.
type unusable struct {
	delivery Delivery
	env      Envelope // as far as it could be read
	err      error
}

// open decodes deliveries and merges copies of the same event.
func (c *Consumer) open(deliveries []Delivery) openedGroup {
	g := openedGroup{deliveries: len(deliveries), items: make([]*item, 0, len(deliveries))}
	byID := make(map[uuid.UUID]*item, len(deliveries))
	since := time.UnixMicro(c.place.since.Load())
	for _, d := range deliveries {
		if d.Attempt() > 1 {
			g.redelivered++
		}
		it, env, err := c.openOne(d)
		if err == nil && it.replay == "" && c.forgotten(env.EventID, since) {
			err = Permanent(Coded("too_old", ErrTooOld))
		}
		if err != nil {
			g.unusable = append(g.unusable, unusable{d, env, err})
			continue
		}
		if twin, ok := byID[it.env.EventID]; ok {
			twin.deliveries = append(twin.deliveries, d)
			continue
		}
		byID[it.env.EventID] = it
		g.items = append(g.items, it)
	}
	return g
}

// forgotten reports whether an event is so old that an inbox which remembers
// since then would no longer know of it. It would look new and may have had its
// effect: a person must say, by a retry, that it has not. Where versions are
// counted, they tell.
func (c *Consumer) forgotten(id uuid.UUID, since time.Time) bool {
	made, known := madeAt(id)
	return !c.everyVersion && known && made.Before(since)
}

// openOne decodes one delivery. Every error is permanent; so is a panic of a
// payload's own decoder, which would otherwise end the process at every
// delivery anew.
func (c *Consumer) openOne(d Delivery) (opened *item, env Envelope, err error) {
	defer func() {
		if value := recover(); value != nil {
			opened, err = nil, Permanent(&panicError{value: value, stack: debug.Stack()})
		}
	}()
	if env, ok := scanEnvelope(d.Data()); ok {
		if it, err := c.itemOf(d, env); err == nil {
			return it, env, nil
		}
	}
	if env, err = decodeEnvelope(d.Data()); err != nil { // what is wrong with an envelope comes first
		return nil, env, err
	}
	it, err := c.itemOf(d, env)
	return it, env, err
}

// itemOf decodes the data of an envelope.
func (c *Consumer) itemOf(d Delivery, env Envelope) (*item, error) {
	kind := env.name()
	h, ok := c.handlers[kind]
	if !ok {
		return nil, Permanent(Coded("unknown_kind", fmt.Errorf("this consumer does not handle %s", kind)))
	}
	data, err := h.decode(env.Data)
	if err != nil {
		return nil, Permanent(Coded("bad_data", withoutValues(err)))
	}
	return &item{deliveries: []Delivery{d}, env: env, kind: kind, handler: h, data: data, result: "applied", replay: replayOf(d)}, nil
}

// contentionRetries is how often a group that lost against other transactions
// is repeated before it is split.
const contentionRetries = 5

// run applies items in one transaction; where that fails because of the events
// themselves, it halves them until the one at fault stands alone. A poison
// event in a group of 1000 so costs about 2·log₂1000 transactions and delays
// nobody else.
func (c *Consumer) run(ctx context.Context, items []*item) error {
	items = c.inTurn(items)
	if len(items) == 0 || c.standStill(items) {
		return nil
	}
	for attempt := 0; ; attempt++ {
		err := c.commit(ctx, items)
		if err == nil {
			faults.Hit("consumer.after_commit_before_ack")
			c.circuit.succeeded(effects(items))
			defer faults.Hit("consumer.after_ack")
			return c.answer(ctx, items)
		}
		if errors.Is(err, errPlaceLost) {
			return err
		}
		switch v := judge(err); {
		case v == again || v == contention && attempt < contentionRetries:
			c.meters.retried(ctx, v.class())
			if attempt%10 == 1 {
				c.cfg.Logger.Warn("the database does not take a group; repeating it", "attempt", attempt, "code", codeOf(err))
			}
			keepAlive(items)
			delay := backoff(attempt, 20*time.Millisecond, 5*time.Second)
			happened(ctx, spanRetry, nil, codeOf(err), delay)
			wait(ctx, delay)
			if ctx.Err() != nil { // stopping, or the place is lost: the broker will deliver it again
				return ctx.Err()
			}
		case len(items) > 1:
			half := len(items) / 2
			if err := c.run(ctx, items[:half]); err != nil {
				return err // what is left undone comes again, and the other half must not come before it
			}
			return c.run(ctx, items[half:])
		default:
			return c.fail(ctx, items[0], v, err)
		}
	}
}

// keepAlive tells the broker that these deliveries are still in work, so that
// they do not come a second time while the database is away.
func keepAlive(items []*item) {
	for _, it := range items {
		for _, d := range it.deliveries {
			_ = d.InProgress() // lost, it leads to a duplicate, which the inbox absorbs
		}
	}
}

// commit applies items in one transaction. It finishes even if ctx is done: a
// transaction that is under way is cheaper to end than to repeat.
func (c *Consumer) commit(ctx context.Context, items []*item) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.HandlerTimeout)
	defer cancel()
	for _, it := range items {
		it.result, it.skipped, it.waiting = "applied", false, false
	}
	began := time.Now()
	defer func() { c.meters.transaction(ctx, time.Since(began)) }()
	return postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.place.fence(ctx, tx); err != nil {
			return err
		}
		waiting, err := c.applyWithin(ctx, tx, items)
		if err != nil {
			return err
		}
		if err := c.park(ctx, tx, waiting); err != nil {
			return err
		}
		faults.Hit("consumer.before_commit")
		return nil
	})
}

// applyWithin applies what can be applied now, and returns what must wait:
// behind an unresolved event of its aggregate, or for a missing version.
func (c *Consumer) applyWithin(ctx context.Context, tx pgx.Tx, items []*item) (waiting []*item, err error) {
	free, waiting, err := c.splitBlocked(ctx, tx, items)
	if err != nil {
		return nil, err
	}
	fresh, gaps, err := c.admit(ctx, tx, free)
	if err != nil {
		return nil, err
	}
	for _, step := range steps(fresh) {
		if err := applyStep(ctx, tx, step); err != nil {
			return nil, err
		}
	}
	waiting = append(waiting, gaps...)
	if err := c.closeFailures(ctx, tx, items, waiting); err != nil {
		return nil, err
	}
	return waiting, c.recordResults(ctx, tx, fresh)
}

// steps cuts events into runs of one kind, so that batch handlers get as many
// at a time as possible: an event joins the last step of its kind, unless a
// later step already holds its aggregate, which it must not overtake.
func steps(items []*item) [][]*item {
	var out [][]*item
	ofKind, ofAggregate := map[string]int{}, map[aggregateKey]int{}
	for _, it := range items {
		if it.skipped {
			continue
		}
		step, ok := ofKind[it.kind]
		if last, held := ofAggregate[it.aggregate()]; !ok || held && last > step {
			out = append(out, nil)
			step = len(out) - 1
			ofKind[it.kind] = step
		}
		out[step] = append(out[step], it)
		ofAggregate[it.aggregate()] = step
	}
	return out
}

// applyStep calls one handler. A panic is an error like any other: it must
// cost its own event and not the process.
func applyStep(ctx context.Context, tx pgx.Tx, step []*item) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value: value, stack: debug.Stack()}
		}
	}()
	return step[0].handler.apply(ctx, tx, step)
}

// answer acknowledges what was committed.
func (c *Consumer) answer(ctx context.Context, items []*item) error {
	for _, it := range items {
		if it.waiting {
			c.comeAgain(it, c.cfg.RetryDelayMax/4)
			continue
		}
		for _, d := range it.deliveries {
			if err := d.Ack(); err != nil { // committed all the same: the inbox absorbs the redelivery
				c.cfg.Logger.Warn("acknowledgement not sent; the event will come again", "event_id", it.env.EventID, "error", err)
			}
		}
	}
	c.meters.done(ctx, items...)
	return nil
}

// fail records an event that stands alone with its error, and acknowledges it.
func (c *Consumer) fail(ctx context.Context, it *item, v verdict, err error) error {
	if pause := c.circuit.failing(err, false); pause > 0 {
		c.opened(ctx, pause, err)
		c.comeAgain(it, pause)
		return nil
	}
	f := deadLetter(it.deliveries[0], it.env, err, true)
	if v != permanent {
		if full, err := c.parkingFull(ctx); err != nil {
			return err
		} else if full { // a release that fails everything must not empty the stream into the table
			c.comeAgain(it, c.cfg.RetryDelayMax/4)
			return nil
		}
		if delay, left := c.cfg.schedule().next(0, 0, err); left {
			f.state, f.class, f.after = stateRetrying, v.class(), delay
		}
	}
	return c.settle(ctx, f, it.deliveries...)
}
