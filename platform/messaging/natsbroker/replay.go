package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
)

// A Span is a part of the stream. Zero values are no bounds.
type Span struct {
	From, To     uint64    // sequences, both inclusive
	Since, Until time.Time // when the server stored it, by its clock; Until is exclusive
	Limit        int       // most messages; one more is returned if there are more
}

func (s Span) past(m *Stored) bool {
	return s.To > 0 && m.Sequence() > s.To || !s.Until.IsZero() && !m.StoredAt().Before(s.Until)
}

func (s Span) full(n int) bool { return s.Limit > 0 && n > s.Limit }

// ReplayConsumer returns the name of the consumer with which a replay for a
// durable reads the stream. The server's permissions name it.
func ReplayConsumer(durable string) string { return durable + "-replay" }

// replayPage bounds one request, and so the memory of its answer.
const replayPage = 256

// replayIdle is when the server forgets a replay's consumer whose reader died.
const replayIdle = 30 * time.Second

// Replay returns what the stream holds of these kinds in a span, in its order,
// for a replay to the durable.
//
// A [Reader] sees every event of the shop; this sees the kinds that it names
// and no others, by the server's permissions and not by its own good will: it
// reads through a consumer of a fixed name with one kind as its filter, and a
// process may create that consumer for its own kinds only. The kinds are read
// one after the other.
//
// Two replays for the same durable cannot read at once: the second gets an
// error. So does, for half a minute, one that comes after a reader that died.
func (b *Broker) Replay(ctx context.Context, durable string, kinds []messaging.Kind, span Span) ([]*Stored, error) {
	var all []*Stored
	for _, filter := range kindFilters(kinds) {
		found, err := b.replayKind(ctx, ReplayConsumer(durable), filter, span)
		if err != nil {
			return nil, fmt.Errorf("read %s for a replay to %s: %w", filter, durable, err)
		}
		all = append(all, found...)
		if span.full(len(all)) {
			break
		}
	}
	slices.SortFunc(all, func(a, b *Stored) int { return cmp.Compare(a.Sequence(), b.Sequence()) })
	return all, nil
}

func (b *Broker) replayKind(ctx context.Context, name, filter string, span Span) (found []*Stored, err error) {
	consumer, err := b.openReplay(ctx, name, filter, span)
	if err != nil {
		return nil, err
	}
	defer func() {
		// Also when ctx has ended: the next replay needs the name.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.AttemptTimeout)
		defer cancel()
		if deleteErr := b.js.DeleteConsumer(ctx, b.cfg.Stream, name); deleteErr != nil && !errors.Is(deleteErr, jetstream.ErrConsumerNotFound) {
			err = errors.Join(err, unavailable(deleteErr))
		}
	}()
	for left := consumer.CachedInfo().NumPending; left > 0; {
		page, pending, err := b.replayNext(ctx, consumer, int(min(left, replayPage)))
		if err != nil {
			return nil, err
		}
		left = pending
		for _, m := range page {
			if span.past(m) || span.full(len(found)) {
				return found, nil
			}
			if !m.StoredAt().Before(span.Since) {
				found = append(found, m)
			}
		}
	}
	return found, nil
}

// openReplay creates the consumer. It must not exist: to take it over would
// make another's replay stop short, and nobody would know.
func (b *Broker) openReplay(ctx context.Context, name, filter string, span Span) (jetstream.Consumer, error) {
	ctx, cancel := b.whileConnected(ctx, b.cfg.AttemptTimeout)
	defer cancel()
	cfg := jetstream.ConsumerConfig{
		Name: name, FilterSubject: filter, AckPolicy: jetstream.AckNonePolicy,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(span.From, 1),
		MemoryStorage: true, Replicas: 1, InactiveThreshold: replayIdle,
	}
	if span.From == 0 && !span.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &span.Since
	}
	started := time.Now()
	consumer, err := b.js.CreateConsumer(ctx, b.cfg.Stream, cfg)
	switch {
	case err == nil:
		return consumer, nil
	case errors.Is(err, jetstream.ErrConsumerExists):
		return nil, fmt.Errorf("another replay is reading: %w", err)
	}
	return nil, unavailable(errors.Join(err, b.violationSince(started)))
}

// replayNext returns the next messages, and how many there are behind them.
func (b *Broker) replayNext(ctx context.Context, consumer jetstream.Consumer, n int) (page []*Stored, left uint64, err error) {
	ctx, cancel := b.whileConnected(ctx, b.cfg.AttemptTimeout)
	defer cancel()
	batch, err := consumer.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return nil, 0, unavailable(err)
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return nil, 0, fmt.Errorf("position of a message: %w", err)
		}
		left = meta.NumPending
		page = append(page, &Stored{stream: meta.Stream, header: m.Headers(), msg: &jetstream.RawStreamMsg{
			Subject: m.Subject(), Sequence: meta.Sequence.Stream, Header: m.Headers(), Data: m.Data(), Time: meta.Timestamp,
		}})
	}
	// Fewer than there are is a lost answer, and must not look like the end.
	if err := batch.Error(); err != nil || len(page) == 0 {
		return nil, 0, unavailable(errors.Join(err, ctx.Err(), errors.New("the server's answer stopped short")))
	}
	return page, left, nil
}
