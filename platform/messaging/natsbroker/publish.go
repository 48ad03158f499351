package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"orderpaid/platform/messaging"
)

// Bounds of one atomic batch.
const (
	// minBatchMessages is where a batch begins to pay. The server stages each
	// batch in a store of its own: about four syncs and a folder, whatever its
	// size, against one sync for a message. Measured: 2 messages 5 ms against
	// 1.5 ms, 8 messages 14 ms against 4 ms, 32 messages 17 ms against 48 ms,
	// 1000 messages 35 ms against 170 ms or more.
	minBatchMessages = 12

	maxBatchMessages = 1000     // the server takes no more
	maxBatchBytes    = 16 << 20 // it stages the batch on disk, but reads it through one buffer
)

// Publish implements [messaging.Publisher].
//
// Messages go in atomic batches, unless they are few or [Config.Single] is set:
// the server stores a batch whole or not at all, with one sync, which makes
// "acknowledged means on disk" ten times cheaper than message by message. Two
// things make a batch fail although nothing is wrong: it holds an id that is
// stored already, because an earlier attempt got through; or its answer is
// lost. In both cases the same messages go once more under the same ids, each
// for itself (see [call.sendSingly]).
func (b *Broker) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	c := &call{b: b, messages: messages, receipts: make([]messaging.Receipt, len(messages)), stopped: map[string]int{}}
	if !b.nc.IsConnected() {
		for i := range messages {
			c.fail(i, unavailable(errNotConnected))
		}
		return c.receipts
	}
	for next := 0; next < len(messages); {
		var batch []int
		batch, next = c.batch(next)
		c.send(ctx, batch)
	}
	return c.receipts
}

// A call is one Publish under way. A batch is a list of indices into messages.
type call struct {
	b        *Broker
	messages []messaging.Message
	receipts []messaging.Receipt
	stopped  map[string]int // for each key, its first message that was not acknowledged
}

// fail gives message i its error, and stops its key there.
func (c *call) fail(i int, err error) {
	c.receipts[i].Err = err
	key := c.messages[i].Key
	if at, stopped := c.stopped[key]; !stopped || i < at {
		c.stopped[key] = i
	}
}

// behind reports whether an earlier message of the same key was not
// acknowledged: message i must not overtake it.
func (c *call) behind(i int) bool {
	at, stopped := c.stopped[c.messages[i].Key]
	return stopped && at < i
}

func (c *call) stored(i int, sequence uint64, duplicate bool) {
	c.receipts[i] = messaging.Receipt{Stream: c.b.cfg.Stream, Sequence: sequence, Duplicate: duplicate}
}

// batch collects messages from the given index on, up to the bounds of one
// batch. What can never be sent is refused on the way.
func (c *call) batch(from int) (batch []int, next int) {
	bytes := 0
	for i := from; i < len(c.messages); i++ {
		m := &c.messages[i]
		if len(batch) == maxBatchMessages || bytes+len(m.Data) > maxBatchBytes && len(batch) > 0 {
			return batch, i
		}
		if c.behind(i) {
			c.fail(i, messaging.ErrBehind)
			continue
		}
		if err := c.b.check(m); err != nil {
			c.fail(i, err)
			continue
		}
		batch = append(batch, i)
		bytes += len(m.Data)
	}
	return batch, len(c.messages)
}

// check refuses what the server would refuse, where the server would answer
// with nothing but silence or a closed connection.
func (b *Broker) check(m *messaging.Message) error {
	if err := m.Check(); err != nil {
		return err
	}
	if size, limit := int64(len(m.Data)+maxHeaderBytes), b.nc.MaxPayload(); size > limit {
		return refused(nats.ErrMaxPayload)
	}
	return nil
}

// send publishes one batch and, where that tells too little, its messages.
func (c *call) send(ctx context.Context, batch []int) {
	if c.b.cfg.Single || len(batch) < minBatchMessages {
		c.sendSingly(ctx, batch, nil)
		return
	}
	start := time.Now()
	err := c.sendAtomic(ctx, batch)
	if denied := c.b.violationSince(start); denied != nil && errors.Is(err, messaging.ErrUnknownOutcome) {
		err = unavailable(denied)
	}
	switch {
	case err == nil:
		return
	case errors.Is(err, messaging.ErrRefused): // nothing is stored; which message it was, each says for itself
		c.sendSingly(ctx, batch, nil)
		return
	case errors.Is(err, messaging.ErrUnknownOutcome) && ctx.Err() == nil && c.b.nc.IsConnected():
		c.sendSingly(ctx, batch, err)
		return
	}
	for _, i := range batch { // all the same: none is stored, or nobody knows of any
		c.fail(i, err)
	}
}

// sendAtomic stores the batch with one commit. The answer to the commit names
// the last sequence; the messages before it have those before it, without gaps.
func (c *call) sendAtomic(ctx context.Context, batch []int) error {
	if ctx.Err() != nil {
		return unavailable(fmt.Errorf("not sent: %w", ctx.Err()))
	}
	messages := make([]*nats.Msg, len(batch))
	for n, i := range batch {
		messages[n] = c.b.message(&c.messages[i])
	}
	ctx, cancel := c.b.whileConnected(ctx, c.attemptTime(ctx))
	defer cancel()
	// Without AckFirst: the commit's answer covers every message, and a round
	// trip before it would only be slower.
	ack, err := jetstreamext.PublishMsgBatch(ctx, c.b.js, messages, jetstreamext.BatchFlowControl{})
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return batchOutcome(err)
	}
	if ack.Stream != c.b.cfg.Stream || ack.Sequence < uint64(len(batch)) {
		return unknown(errors.New("the acknowledgement is not of this stream"))
	}
	first := ack.Sequence - uint64(len(batch)) + 1
	for n, i := range batch {
		c.stored(i, first+uint64(n), false)
	}
	return nil
}

// attemptTime leaves the second half of the caller's time to the repetition.
func (c *call) attemptTime(ctx context.Context) time.Duration {
	timeout := c.b.cfg.AttemptTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	return timeout
}

// maxHeaderBytes is more than the headers of message and of a batch can take.
const maxHeaderBytes = 512

// message builds what goes over the wire. Header names are case-sensitive in
// NATS; traceparent is lower case, because that is how W3C writes it.
// https://www.w3.org/TR/trace-context/#header-name
func (b *Broker) message(m *messaging.Message) *nats.Msg {
	header := make(nats.Header, 6)
	b.setHeader(header, m)
	return &nats.Msg{Subject: m.Subject, Header: header, Data: m.Data}
}

// setHeader makes the header that of message m, whosever it was before.
func (b *Broker) setHeader(header nats.Header, m *messaging.Message) {
	set := func(name, value string) {
		if values := header[name]; len(values) == 1 {
			values[0] = value
		} else {
			header[name] = []string{value}
		}
	}
	set(jetstream.MsgIDHeader, m.ID.String())
	set(jetstream.ExpectedStreamHeader, b.cfg.Stream) // no other stream may answer for it
	if m.Traced() {
		set("traceparent", m.TraceParent)
	} else {
		delete(header, "traceparent")
	}
}
