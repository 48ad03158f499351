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

// A Reader reads what the stream holds, again and from any place, without a
// durable: for rebuilding, exporting and comparing. It leaves no trace on the
// server and needs one permission, to publish to $JS.API.DIRECT.GET.<stream>.
//
// What a stream holds is bounded by its age and size. A Reader starts at the
// oldest message that is left and cannot know what stood before it. Where the
// stream has replicas, the one that answers may be a moment behind.
//
// It is for one goroutine.
type Reader struct {
	b     *Broker
	kinds kindSet
	next  uint64 // the sequence to go on from; 0: begin at start
	start time.Time
}

// Reader returns a reader of the given kinds that starts at the sequence from;
// 1 is the beginning.
func (b *Broker) Reader(kinds []messaging.Kind, from uint64) *Reader {
	return &Reader{b: b, kinds: newKindSet(kinds), next: max(from, 1)}
}

// ReaderSince returns a reader of the given kinds that starts at the first
// message that the server stored at t or later, by the server's clock.
func (b *Broker) ReaderSince(kinds []messaging.Kind, t time.Time) *Reader {
	r := b.Reader(kinds, 1)
	r.next, r.start = 0, t
	return r
}

// readBytes bounds the memory of one answer.
const readBytes = 8 << 20

// Next returns the next messages, up to limit, oldest first. It returns none, and
// no error, at the end of the stream; later it may find more.
//
// After an error, Next goes on where the last messages that it returned ended.
// While the broker is away the error matches [messaging.ErrUnavailable].
func (r *Reader) Next(ctx context.Context, limit int) ([]*Stored, error) {
	for {
		batch, next, err := r.read(ctx, limit)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("read stream %s from %d: %w", r.b.cfg.Stream, r.next, err)
		}
		end := next == r.next
		r.next = next
		if end || len(batch) > 0 {
			return batch, nil
		}
	}
}

// read makes one request. next is where the following one starts; it stays
// where it was at the end of the stream.
//
// Only the server's word that there is nothing more is the end. An answer that
// stops short looks the same as a complete one to the client library, so a
// short batch means nothing, and an empty one is an error.
func (r *Reader) read(ctx context.Context, limit int) (batch []*Stored, next uint64, err error) {
	ctx, cancel := r.b.whileConnected(ctx, r.b.cfg.AttemptTimeout)
	defer cancel()
	from := jetstreamext.GetBatchSeq(r.next)
	if r.next == 0 {
		from = jetstreamext.GetBatchStartTime(r.start)
	}
	answers, err := jetstreamext.GetBatch(ctx, r.b.js, r.b.cfg.Stream, limit, from, jetstreamext.GetBatchMaxBytes(readBytes))
	if err != nil {
		return nil, 0, unavailable(err)
	}
	next = r.next
	for m, err := range answers {
		switch {
		case errors.Is(err, jetstreamext.ErrNoMessages):
			return batch, next, nil
		case err != nil:
			return nil, 0, unavailable(err)
		}
		next = m.Sequence + 1
		if r.kinds.has(m.Subject) {
			batch = append(batch, &Stored{stream: r.b.cfg.Stream, msg: m, header: ownHeaders(m.Header)})
		}
	}
	if next == r.next {
		return nil, 0, unavailable(errors.New("no answer"))
	}
	return batch, next, nil
}

// A Stored is one message as the stream holds it. It implements
// [messaging.Delivery], so that it can go through [messaging.Consumer.Apply];
// but nobody waits for its answer, which is only noted.
type Stored struct {
	stream string
	msg    *jetstream.RawStreamMsg
	header nats.Header
	done   bool
}

var _ messaging.Delivery = (*Stored)(nil)

func (s *Stored) Data() []byte                 { return s.msg.Data }
func (s *Stored) Subject() string              { return s.msg.Subject }
func (s *Stored) Header(name string) string    { return s.header.Get(name) }
func (s *Stored) Headers() map[string][]string { return s.header }
func (s *Stored) Stream() string               { return s.stream }
func (s *Stored) Sequence() uint64             { return s.msg.Sequence }
func (s *Stored) Attempt() int                 { return 1 }
func (s *Stored) StoredAt() time.Time          { return s.msg.Time }

// Ack notes that the message is done with.
func (s *Stored) Ack() error { s.done = true; return nil }

// Retry notes nothing: Done stays false, and the caller offers the message
// again when it sees fit.
func (s *Stored) Retry(time.Duration) error { return nil }

// InProgress does nothing: no time runs.
func (s *Stored) InProgress() error { return nil }

// Done reports whether the message was acknowledged.
func (s *Stored) Done() bool { return s.done }

// ownHeaders leaves out what the server adds to an answer: it is not part of
// the message.
func ownHeaders(h nats.Header) nats.Header {
	own := make(nats.Header, len(h))
	for name, values := range h {
		switch name {
		case jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer,
			"Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence":
		default:
			own[name] = values
		}
	}
	return own
}
