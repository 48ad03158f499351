package messaging

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/faults"
	"orderpaid/platform/postgres"
)

// settle records what the broker said: evidence for what it stored, a place
// among the held for what it refused, and nothing for the rest, which is read
// again.
func (l *relayLane) settle(ctx context.Context, batch batchLease, rows []pendingRow, receipts []Receipt) (moved int, err error) {
	l.meters.published(ctx, receipts)
	faults.Hit("relay.after_ack_before_mark")
	for _, stored := range storedRows(rows, receipts) {
		if err := l.mark(ctx, stored); err != nil {
			return 0, err
		}
		moved += len(stored.ids)
	}
	held := l.chooseHeld(rows, receipts, moved > 0)
	away, err := l.hold(ctx, batch, held)
	if err != nil {
		return 0, err
	}
	moved += away
	if broken := firstFault(receipts); moved == 0 && broken != nil { // the broker took nothing: it is away, not the events
		return 0, fmt.Errorf("publish %d events: %w", len(rows), broken)
	}
	return moved, nil
}

// firstFault is the first error that is not only another one's consequence.
func firstFault(receipts []Receipt) error {
	for i := range receipts {
		if err := receipts[i].Err; err != nil && !errors.Is(err, ErrBehind) {
			return err
		}
	}
	return nil
}

// uniqueViolation is the SQLSTATE of a row that is there already.
const uniqueViolation = "23505"

// markRows are the events that the broker stored in one stream: all anew, or
// all as duplicates of what it held.
type markRows struct {
	stream    string
	duplicate bool
	shards    []int16
	ids, seqs []int64
	createdAt []time.Time
}

// storedRows sorts out what was stored. It is nearly always one entry: to send
// stream and duplicate for each row costs a seventh of the statement.
func storedRows(rows []pendingRow, receipts []Receipt) (marks []*markRows) {
	for i := range receipts {
		receipt := &receipts[i]
		if receipt.Err != nil {
			continue
		}
		at := slices.IndexFunc(marks, func(m *markRows) bool { return m.stream == receipt.Stream && m.duplicate == receipt.Duplicate })
		if at < 0 {
			at = len(marks)
			marks = append(marks, &markRows{stream: receipt.Stream, duplicate: receipt.Duplicate})
		}
		marks[at].add(&rows[i], receipt.Sequence)
	}
	return marks
}

func (m *markRows) add(row *pendingRow, sequence uint64) {
	m.shards = append(m.shards, row.Shard)
	m.ids = append(m.ids, row.ID)
	m.seqs = append(m.seqs, int64(sequence))
	m.createdAt = append(m.createdAt, row.CreatedAt)
}

// sqlMark turns queue rows into evidence. An acknowledgement is a fact,
// whoever brings it, so no lease is checked; a second marker deletes nothing
// and therefore writes nothing.
//
// Each row is looked up by its key, and deleted by its place. To delete by a
// join with the keys is one step less and a trap: while a transaction stays
// open, the statistics of a queue that was empty for a moment say "one row",
// and the planner then walks the whole index, dead entries included, and holds
// every row against every key: two seconds for each batch, until the next
// analysis. LIMIT keeps it from turning the lookup into such a join.
const sqlMark = `
WITH named AS MATERIALIZED (
	SELECT q.ctid AS place, u.seq
	  FROM unnest(@shards::smallint[], @ids::bigint[], @seqs::bigint[]) AS u(shard, id, seq)
	 CROSS JOIN LATERAL (SELECT p.ctid FROM message_outbox_pending p WHERE p.shard = u.shard AND p.id = u.id LIMIT 1) q
), done AS (
	DELETE FROM message_outbox_pending p USING named n
	 WHERE p.ctid = n.place
	RETURNING p.event_id, n.seq
)
INSERT INTO message_outbox_publication (event_id, stream, stream_seq, duplicate, relay)
SELECT event_id, @stream, seq, @duplicate, @relay FROM done`

// sqlMarkAgain is for events that were published again on purpose, after the
// broker had lost them: they get their new position. It is not the rule,
// because a conflict clause costs a quarter of the statement, and a record more
// in the log for each row.
const sqlMarkAgain = sqlMark + `
ON CONFLICT (event_id) DO UPDATE SET stream = excluded.stream, stream_seq = excluded.stream_seq,
	duplicate = excluded.duplicate, published_at = excluded.published_at, relay = excluded.relay`

func (l *relayLane) mark(ctx context.Context, m *markRows) error {
	args := pgx.StrictNamedArgs{"shards": m.shards, "ids": m.ids, "seqs": m.seqs, "stream": m.stream, "duplicate": m.duplicate, "relay": l.cfg.Name}
	_, err := l.conn.Exec(ctx, sqlMark, args)
	if postgres.Code(err) == uniqueViolation { // nothing is done yet
		_, err = l.conn.Exec(ctx, sqlMarkAgain, args)
	}
	if err != nil {
		return fmt.Errorf("mark %d published events: %w", len(m.ids), err)
	}
	l.meters.marked(ctx, m.createdAt)
	return nil
}

// An event that the broker does not take must not stop the others, and the
// later events of its aggregate must not overtake it. Both go from the queue
// to message_outbox_held, in id order, and come back together.

// heldRows are the columns of one sqlHold call.
type heldRows struct {
	shards         []int16
	epochs         []int64
	ids            []int64
	eventIDs       []uuid.UUID
	aggregateTypes []string
	aggregateIDs   []string
	states         []string
	attempts       []int
	delays         []time.Duration // until its turn; negative: not before a person says so
	errors         []string
}

func (h *heldRows) add(row *pendingRow, epoch int64, state string, attempts int, delay time.Duration, reason string) {
	h.shards = append(h.shards, row.Shard)
	h.epochs = append(h.epochs, epoch)
	h.ids = append(h.ids, row.ID)
	h.eventIDs = append(h.eventIDs, row.EventID)
	h.aggregateTypes = append(h.aggregateTypes, row.AggregateType)
	h.aggregateIDs = append(h.aggregateIDs, row.AggregateID)
	h.states = append(h.states, state)
	h.attempts = append(h.attempts, attempts)
	h.delays = append(h.delays, delay)
	h.errors = append(h.errors, reason)
}

// chooseHeld picks the rows to hold: what was refused for good (failed), what
// had no answer although others did, so that the fault is its own (backoff),
// and what stands behind either. When the broker took nothing at all, only
// refusals are held: an outage is not the events' fault.
func (l *relayLane) chooseHeld(rows []pendingRow, receipts []Receipt, othersStored bool) heldRows {
	var held heldRows
	blocked := map[string]bool{}
	for i := range rows {
		row, err := &rows[i], receipts[i].Err
		if err == nil {
			continue
		}
		key := row.AggregateType + "/" + row.AggregateID
		switch {
		case row.Held || blocked[key]:
			blocked[key] = true
			held.add(row, 0, "behind", row.Attempts, -1, "an earlier event of this aggregate is held")
		case errors.Is(err, ErrRefused):
			blocked[key] = true
			held.add(row, 0, "failed", row.Attempts+1, -1, truncate(err.Error(), 500))
			l.cfg.Logger.Error("the broker refuses an event; its aggregate is held until someone acts",
				"event_id", row.EventID, "subject", row.Subject, "attempt", row.Attempts+1, "error", err)
		case othersStored && !errors.Is(err, ErrBehind):
			blocked[key] = true
			held.add(row, 0, "backoff", row.Attempts+1, backoff(row.Attempts, 500*time.Millisecond, 2*time.Minute), truncate(err.Error(), 500))
		}
	}
	return held
}

// sqlHold moves rows out of the queue, in shards that this relay still holds
// by the epoch under which it read them. A relay that has lost a shard must
// not: the new owner may have published the row meanwhile.
const sqlHold = `
WITH fence AS (
	SELECT l.shard FROM relay_lease l
	 WHERE l.owner = @relay AND l.lease_until > clock_timestamp()
	   AND (l.shard, l.epoch) IN (SELECT * FROM unnest(@shards::smallint[], @epochs::bigint[]))
	   FOR SHARE
), named AS MATERIALIZED (
	SELECT q.ctid AS place
	  FROM fence f JOIN unnest(@shards::smallint[], @ids::bigint[]) AS u(shard, id) ON u.shard = f.shard
	 CROSS JOIN LATERAL (SELECT p.ctid FROM message_outbox_pending p WHERE p.shard = u.shard AND p.id = u.id LIMIT 1) q
), moved AS (
	DELETE FROM message_outbox_pending p USING named n
	 WHERE p.ctid = n.place
	RETURNING p.shard, p.id
)
INSERT INTO message_outbox_held (shard, id, event_id, aggregate_type, aggregate_id, state, attempts, available_at, last_error)
SELECT u.shard, u.id, u.event_id, u.aggregate_type, u.aggregate_id, u.state, u.attempts,
       CASE WHEN u.delay < interval '0' THEN 'infinity' ELSE clock_timestamp() + u.delay END, u.error
  FROM moved
  JOIN unnest(@shards::smallint[], @ids::bigint[], @event_ids::uuid[], @aggregate_types::text[], @aggregate_ids::text[],
              @states::text[], @attempts::integer[], @delays::interval[], @errors::text[])
       AS u(shard, id, event_id, aggregate_type, aggregate_id, state, attempts, delay, error)
    ON u.shard = moved.shard AND u.id = moved.id`

// hold returns how many rows it moved.
func (l *relayLane) hold(ctx context.Context, batch batchLease, h heldRows) (moved int, err error) {
	if len(h.ids) == 0 {
		return 0, nil
	}
	for i, shard := range h.shards {
		h.epochs[i] = batch.epochs[shard]
	}
	tag, err := l.conn.Exec(ctx, sqlHold, pgx.StrictNamedArgs{"relay": l.cfg.Name, "shards": h.shards, "epochs": h.epochs, "ids": h.ids,
		"event_ids": h.eventIDs, "aggregate_types": h.aggregateTypes, "aggregate_ids": h.aggregateIDs,
		"states": h.states, "attempts": h.attempts, "delays": h.delays, "errors": h.errors})
	if err != nil {
		return 0, fmt.Errorf("hold %d events: %w", len(h.ids), err)
	}
	l.meters.held(ctx, h.states)
	h.happened(ctx)
	return int(tag.RowsAffected()), nil
}

// sqlReleaseDue returns whole aggregates to the queue once the first of them
// is due. Ids do not change, so their order does not either.
const sqlReleaseDue = `
WITH due AS (
	SELECT DISTINCT h.shard, h.aggregate_type, h.aggregate_id FROM message_outbox_held h
	 WHERE h.shard = ANY($1::smallint[]) AND h.state = 'backoff' AND h.available_at <= clock_timestamp()
	 LIMIT 1000
), fence AS (
	SELECT l.shard FROM relay_lease l
	 WHERE l.owner = $2 AND l.lease_until > clock_timestamp() AND l.shard = ANY($1::smallint[])
	   FOR SHARE
), moved AS (
	DELETE FROM message_outbox_held h
	 USING due d, fence f
	 WHERE f.shard = d.shard AND h.shard = d.shard AND h.aggregate_type = d.aggregate_type AND h.aggregate_id = d.aggregate_id
	RETURNING h.shard, h.id, h.event_id, h.attempts, h.last_error
)
INSERT INTO message_outbox_pending (shard, id, event_id, attempts, last_error)
SELECT shard, id, event_id, attempts, last_error FROM moved`

// releaseDue looks for held aggregates whose turn has come, a few times a second.
func (l *relayLane) releaseDue(ctx context.Context, batch batchLease) error {
	if time.Since(l.released) < l.cfg.Poll {
		return nil
	}
	l.released = time.Now()
	if _, err := l.conn.Exec(ctx, sqlReleaseDue, batch.shards, l.cfg.Name); err != nil {
		return fmt.Errorf("release held events: %w", err)
	}
	return nil
}

// backoff is exponential with full jitter: a random time up to
// min(longest, base·2ⁿ), so that many who failed together do not come back
// together. https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
func backoff(n int, base, longest time.Duration) time.Duration {
	ceiling := longest
	if n < 30 && base<<max(n, 0) < longest {
		ceiling = base << max(n, 0)
	}
	return rand.N(ceiling) + 1
}

// truncate cuts s to at most n bytes, on a boundary of characters.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
