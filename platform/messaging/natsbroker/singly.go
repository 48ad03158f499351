package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"orderpaid/platform/faults"
	"orderpaid/platform/messaging"
)

// window bounds the messages of one call that wait for their answer.
const window = 512

// sendSingly publishes each message for itself. Many are on the way at once,
// but never two of a key: no message is on the wire before its predecessor is
// stored, and none can overtake it when the server loses one of them.
//
// earlier is what is known of a first attempt to send the same messages: nil
// if it stored nothing, else an error that matches ErrUnknownOutcome. After
// such an attempt only a stored or a refused message is certain; whatever else
// happens here, the message may have been stored there.
func (c *call) sendSingly(ctx context.Context, batch []int, earlier error) {
	start := time.Now()
	f, err := c.b.replies.begin(c.b, len(batch))
	if err != nil {
		for _, i := range batch {
			c.settle(i, outcome{err: err}, nil, earlier)
		}
		return
	}
	defer c.b.replies.end(f)
	order, before := c.inRounds(batch)
	wire := &nats.Msg{Header: nats.Header{}} // the client copies it before it returns
	for _, n := range order {
		if p := before[n]; p >= 0 {
			f.await(ctx, p)
			if f.outcomes[p].err != nil {
				f.fail(n, messaging.ErrBehind)
				continue
			}
		}
		c.sendOne(ctx, f, n, batch[n], wire)
	}
	faults.Hit("relay.after_publish_before_ack")
	f.awaitAll(ctx)
	denied := c.b.violationSince(start)
	for n, i := range batch {
		c.settle(i, f.outcomes[n], denied, earlier)
	}
}

// sendOne puts message i of the call, which is message n of the flight, on the
// wire.
func (c *call) sendOne(ctx context.Context, f *flight, n, i int, wire *nats.Msg) {
	f.awaitRoom(ctx)
	if ctx.Err() != nil {
		f.fail(n, unavailable(fmt.Errorf("not sent: %w", ctx.Err())))
		return
	}
	m := &c.messages[i]
	wire.Subject, wire.Data, wire.Reply = m.Subject, m.Data, f.sending(n)
	c.b.setHeader(wire.Header, m)
	if err := c.b.nc.PublishMsg(wire); err != nil {
		f.fail(n, sendOutcome(err))
	}
}

// inRounds returns the positions of the batch in the order in which they are
// sent, and for each position the one of its predecessor, or -1. The first
// messages of all keys go first, then the second ones: by then the first are
// mostly answered, and two of a key side by side, as an order and its payment
// often are, cost no wait of their own.
func (c *call) inRounds(batch []int) (order, before []int) {
	type place struct{ n, round int }
	last := make(map[string]place, len(batch))
	before = make([]int, len(batch))
	rounds := make([]int, len(batch))
	for n, i := range batch {
		p, again := last[c.messages[i].Key]
		before[n] = -1
		if again {
			before[n], rounds[n] = p.n, p.round+1
		}
		last[c.messages[i].Key] = place{n, rounds[n]}
	}
	order = make([]int, len(batch))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return rounds[a] - rounds[b] })
	return order, before
}

// settle gives message i its receipt.
func (c *call) settle(i int, o outcome, denied, earlier error) {
	err := o.err
	if denied != nil && errors.Is(err, messaging.ErrUnknownOutcome) {
		err = unavailable(denied)
	}
	switch {
	case err == nil:
		c.stored(i, o.sequence, o.duplicate)
	case earlier != nil && !errors.Is(err, messaging.ErrRefused):
		c.fail(i, earlier)
	default:
		c.fail(i, err)
	}
}
