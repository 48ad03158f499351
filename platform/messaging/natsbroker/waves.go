package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/faults"
	"orderpaid/platform/messaging"
)

const (
	// window bounds the messages of one call that wait for their answer.
	window = 256

	// maxPendingAcks bounds all calls together. It is far above what the calls
	// of one process can reach, because the client answers an exceeded bound
	// by stalling.
	maxPendingAcks = 64 * window
)

// sendInWaves publishes each message for itself. A wave holds at most one
// message of a key, and the next wave starts when this one is answered: so no
// message is on the wire before its predecessor is stored, and none can
// overtake it when the server loses one of them.
//
// earlier is what is known of a first attempt to send the same messages: nil
// if it stored nothing, else an error that matches ErrUnknownOutcome. After
// such an attempt only a stored or a refused message is certain; whatever else
// happens here, the message may have been stored there.
func (c *call) sendInWaves(ctx context.Context, batch []int, earlier error) {
	for len(batch) > 0 {
		wave, rest := c.split(batch)
		c.sendWave(ctx, wave, earlier)
		batch = rest
	}
}

// split takes the first message of each key, up to the window.
func (c *call) split(batch []int) (wave, rest []int) {
	taken := make(map[string]bool, min(len(batch), window))
	for n, i := range batch {
		if len(wave) == window {
			return wave, append(rest, batch[n:]...)
		}
		if key := c.messages[i].Key; taken[key] {
			rest = append(rest, i)
		} else {
			taken[key] = true
			wave = append(wave, i)
		}
	}
	return wave, rest
}

// sendWave publishes the messages of a wave and waits for all answers.
func (c *call) sendWave(ctx context.Context, wave []int, earlier error) {
	start := time.Now()
	futures := make([]jetstream.PubAckFuture, len(wave))
	for n, i := range wave {
		switch {
		case c.behind(i):
			c.failAfter(i, messaging.ErrBehind, earlier)
		case ctx.Err() != nil:
			c.failAfter(i, unavailable(fmt.Errorf("not sent: %w", ctx.Err())), earlier)
		default:
			var err error
			// No responders means no stream or no leader. The relay comes back;
			// waiting here for one would hold up its other shards.
			futures[n], err = c.b.js.PublishMsgAsync(c.b.message(&c.messages[i]), jetstream.WithRetryAttempts(0))
			if err != nil {
				c.failAfter(i, sendOutcome(err), earlier)
			}
		}
	}
	faults.Hit("relay.after_publish_before_ack")
	for n, i := range wave {
		if futures[n] == nil {
			continue
		}
		ack, err := c.await(ctx, futures[n])
		if denied := c.b.violationSince(start); denied != nil && errors.Is(err, messaging.ErrUnknownOutcome) {
			err = unavailable(denied)
		}
		if err != nil {
			c.failAfter(i, err, earlier)
			continue
		}
		c.stored(i, ack.Sequence, ack.Duplicate)
	}
}

// failAfter is fail for a message that an earlier attempt may have stored.
func (c *call) failAfter(i int, err, earlier error) {
	if earlier != nil && !errors.Is(err, messaging.ErrRefused) {
		err = earlier
	}
	c.fail(i, err)
}

// await returns the answer to one message. Only an acknowledgement of the
// expected stream counts: anybody may reply to a request.
func (c *call) await(ctx context.Context, future jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	select {
	case ack := <-future.Ok():
		if ack.Stream != c.b.cfg.Stream || ack.Sequence == 0 {
			return nil, unknown(errors.New("the acknowledgement is not of this stream"))
		}
		return ack, nil
	case err := <-future.Err():
		return nil, answerOutcome(err)
	case <-ctx.Done():
		return nil, unknown(ctx.Err())
	}
}
