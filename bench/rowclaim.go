package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
)

// The relay of the textbooks: rows are claimed with FOR UPDATE SKIP LOCKED and
// a lease each, published, and marked by another update of the same row. One
// worker: with two, measured, the events of one order overtake each other.

// sqlRowClaimTables has the product's columns, its two indexes for people
// (by event, by aggregate), and what the pattern needs besides.
const sqlRowClaimTables = `
CREATE TABLE claim_outbox (
	id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	event_id          uuid        NOT NULL UNIQUE,
	aggregate_type    text        NOT NULL,
	aggregate_id      text        NOT NULL,
	aggregate_version bigint      NOT NULL,
	subject           text        NOT NULL,
	payload           bytea       NOT NULL,
	created_at        timestamptz NOT NULL DEFAULT now(),
	status            text        NOT NULL DEFAULT 'pending',
	attempts          integer     NOT NULL DEFAULT 0,
	lease_until       timestamptz,
	owner             text,
	stream_seq        bigint,
	published_at      timestamptz
);
CREATE INDEX claim_outbox_aggregate_idx ON claim_outbox (aggregate_id, aggregate_version);
CREATE INDEX claim_outbox_pending_idx ON claim_outbox (id) WHERE status = 'pending';
CREATE INDEX claim_outbox_leased_idx ON claim_outbox (lease_until) WHERE status = 'publishing'`

const sqlRowClaimStage = `
INSERT INTO claim_outbox (event_id, aggregate_type, aggregate_id, aggregate_version, subject, payload)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bytea[])`

const sqlRowClaim = `
WITH picked AS (
	SELECT id FROM claim_outbox
	 WHERE status = 'pending'
	 ORDER BY id
	 LIMIT $1
	   FOR UPDATE SKIP LOCKED
)
UPDATE claim_outbox o SET status = 'publishing', lease_until = now() + interval '30 seconds', owner = $2, attempts = attempts + 1
  FROM picked
 WHERE o.id = picked.id
RETURNING o.id, o.event_id, o.aggregate_type || '/' || o.aggregate_id AS key, o.subject, o.payload`

const sqlRowMark = `
UPDATE claim_outbox o SET status = 'published', published_at = now(), stream_seq = u.seq
  FROM unnest($1::bigint[], $2::bigint[]) AS u(id, seq)
 WHERE o.id = u.id AND o.status = 'publishing' AND o.owner = $3`

type claimedRow struct {
	ID      int64
	EventID uuid.UUID
	Key     string
	Subject string
	Payload []byte
}

// rowClaim drains by the textbook.
func (s *stand) rowClaim(b *broker) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		db, drop, err := s.newDatabase(ctx, "messaging")
		if err != nil {
			return nil, err
		}
		defer drop()
		pool, err := db.open(ctx, 2)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		if _, err := pool.Exec(ctx, sqlRowClaimTables); err != nil {
			return nil, fmt.Errorf("create tables: %w", err)
		}
		return s.drainOf(ctx, b, s.events, drainSteps{
			stage: func() error { return s.events.stageRows(ctx, pool) },
			settle: func() error {
				_, err := pool.Exec(ctx, "ANALYZE claim_outbox")
				return err
			},
			drain: func(started func()) error { return relayRows(ctx, pool, b.url, len(s.events.messages), started) },
			check: func(map[uuid.UUID]int64) error {
				n, err := single(ctx, pool, `SELECT count(*) FROM claim_outbox WHERE status = 'published' AND stream_seq > 0`)
				if err == nil && int(n) != len(s.events.messages) {
					err = fmt.Errorf("%w: %d rows are published", errCheated, n)
				}
				return err
			},
		})
	}
}

// stageRows writes the events as the pattern's users would, in batches.
func (w *work) stageRows(ctx context.Context, pool *pgxpool.Pool) error {
	for batch := range slices.Chunk(w.messages, stageBatch) {
		n := len(batch)
		ids, kinds, aggregates := make([]uuid.UUID, n), make([]string, n), make([]string, n)
		versions, subjects, payloads := make([]int64, n), make([]string, n), make([][]byte, n)
		for i, m := range batch {
			at := w.places[m.ID]
			ids[i], kinds[i], aggregates[i], versions[i] = m.ID, "order", at.aggregate, at.version
			subjects[i], payloads[i] = m.Subject, m.Data
		}
		if _, err := pool.Exec(ctx, sqlRowClaimStage, ids, kinds, aggregates, versions, subjects, payloads); err != nil {
			return fmt.Errorf("stage rows: %w", err)
		}
	}
	return nil
}

// relayRows claims, publishes and marks until n rows are done.
func relayRows(ctx context.Context, pool *pgxpool.Pool, url string, n int, started func()) error {
	nc, js, err := connect(url, 2*stageBatch)
	if err != nil {
		return err
	}
	defer nc.Close()
	started()
	for done := 0; done < n; {
		rows, err := pool.Query(ctx, sqlRowClaim, stageBatch, "relay-1")
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		claimed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimedRow])
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		if len(claimed) == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		// RETURNING has no order; without this the events of an order would.
		slices.SortFunc(claimed, func(a, b claimedRow) int { return cmp.Compare(a.ID, b.ID) })
		if err := publishRows(ctx, pool, js, claimed); err != nil {
			return err
		}
		done += len(claimed)
	}
	return nil
}

func publishRows(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream, claimed []claimedRow) error {
	futures := make([]jetstream.PubAckFuture, len(claimed))
	ids, seqs := make([]int64, len(claimed)), make([]int64, len(claimed))
	for i, row := range claimed {
		var err error
		m := messaging.Message{ID: row.EventID, Key: row.Key, Subject: row.Subject, Data: row.Payload}
		if futures[i], err = js.PublishMsgAsync(natsMessage(&m)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	for i, future := range futures {
		select {
		case ack := <-future.Ok():
			ids[i], seqs[i] = claimed[i].ID, int64(ack.Sequence)
		case err := <-future.Err():
			return fmt.Errorf("publish: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tag, err := pool.Exec(ctx, sqlRowMark, ids, seqs, "relay-1")
	if err == nil && int(tag.RowsAffected()) != len(ids) {
		err = errors.New("a lease has run out")
	}
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	return nil
}
