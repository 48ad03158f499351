package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging/natsbroker"
)

// read returns the ids on the stream by position, 1 being the first.
func (b *broker) read(ctx context.Context) (ids []uuid.UUID, err error) {
	n, err := b.stored(ctx)
	if err != nil || n == 0 {
		return nil, err
	}
	reader, err := b.js.OrderedConsumer(ctx, natsbroker.DefaultStream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	messages, err := reader.Messages(jetstream.PullMaxMessages(5000))
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	defer messages.Stop()
	ids = make([]uuid.UUID, 0, n)
	for range n {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
		id, err := uuid.Parse(m.Headers().Get(jetstream.MsgIDHeader))
		if err != nil {
			return nil, fmt.Errorf("read the stream: a message without an event's id: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// verify reads the stream back. It returns an error unless every event is
// there, and how often an event stands before an earlier one of its
// aggregate, both by their first appearance.
func (w *work) verify(ctx context.Context, b *broker) (positions map[uuid.UUID]int64, inverted int, err error) {
	ids, err := b.read(ctx)
	if err != nil {
		return nil, 0, err
	}
	positions = make(map[uuid.UUID]int64, len(ids))
	newest := map[string]int64{} // version
	for i, id := range ids {
		at, ok := w.places[id]
		if !ok {
			return nil, 0, fmt.Errorf("%w: event %s is on the stream and nobody staged it", errCheated, id)
		}
		if _, again := positions[id]; again {
			continue
		}
		positions[id] = int64(i + 1)
		if at.version < newest[at.aggregate] {
			inverted++
		}
		newest[at.aggregate] = max(newest[at.aggregate], at.version)
	}
	if missing := len(w.places) - len(positions); missing > 0 {
		return nil, 0, fmt.Errorf("%w: %d of %d events are not on the stream", errCheated, missing, len(w.places))
	}
	return positions, inverted, nil
}

// verifyEvidence compares what the database says of the publication with the
// stream.
func verifyEvidence(ctx context.Context, pool *pgxpool.Pool, positions map[uuid.UUID]int64) error {
	pending, err := single(ctx, pool, `SELECT count(*) FROM message_outbox_pending`)
	if err != nil {
		return err
	}
	rows, err := pool.Query(ctx, `SELECT event_id, stream_seq FROM message_outbox_publication`)
	if err != nil {
		return fmt.Errorf("read evidence: %w", err)
	}
	var id uuid.UUID
	var seq int64
	found, wrong := 0, 0
	if _, err := pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
		switch at, ours := positions[id]; {
		case !ours: // rows that stood there before
		case at != seq:
			wrong++
			found++
		default:
			found++
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read evidence: %w", err)
	}
	if pending > 0 || wrong > 0 || found != len(positions) {
		return errors.Join(errCheated, fmt.Errorf("of %d events %d have evidence, %d of it wrong, and %d are pending", len(positions), found, wrong, pending))
	}
	return nil
}
