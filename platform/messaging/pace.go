package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What a lane publishes next: which rows, and how many.

// sqlReadPending reads each shard's oldest rows. There is no position to
// remember: a transaction that commits late with a lower id is simply read in
// the next batch (the mark that "id > last seen" readers miss). A batch ends
// at 16 MiB of payloads as well: a thousand events of the largest size would
// be more than a small relay has. Whether anything is held at all is asked once
// and not for each row.
const sqlReadPending = `
SELECT shard, id, event_id, attempts, aggregate_type, aggregate_id, subject, payload, trace_parent, created_at, held
  FROM (
SELECT q.shard, q.id, q.event_id, q.attempts, o.aggregate_type, o.aggregate_id, o.subject, o.payload, o.trace_parent, o.created_at,
       (SELECT EXISTS (SELECT 1 FROM message_outbox_held))
       AND EXISTS (SELECT 1 FROM message_outbox_held h
                    WHERE h.shard = q.shard AND h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id AND h.id < q.id) AS held,
       sum(octet_length(o.payload)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(o.payload) AS before
  FROM unnest($1::smallint[]) AS s(shard)
 CROSS JOIN LATERAL (
	SELECT p.shard, p.id, p.event_id, p.attempts FROM message_outbox_pending p
	 WHERE p.shard = s.shard ORDER BY p.id LIMIT $2) q
  JOIN message_outbox o ON o.event_id = q.event_id) r
 WHERE before < 16777216
 LIMIT $3`

// read returns up to a batch of rows, each shard's in id order.
func (l *relayLane) read(ctx context.Context, shards []int16) ([]pendingRow, error) {
	l.turn++
	turned := make([]int16, 0, len(shards))
	for i := range shards {
		turned = append(turned, shards[(i+l.turn)%len(shards)])
	}
	size := l.size()
	fair := (size + len(shards) - 1) / len(shards)
	l.window = min(max(l.window, fair), size)
	for {
		rows, err := l.conn.Query(ctx, sqlReadPending, turned, l.window, size)
		if err != nil {
			return nil, fmt.Errorf("read pending: %w", err)
		}
		pending, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pendingRow])
		if err != nil {
			return nil, fmt.Errorf("read pending: %w", err)
		}
		full := fullestShard(pending) >= l.window
		switch {
		case full && len(pending) < size/2 && l.window < size:
			l.window = min(l.window*4, size) // few shards hold the backlog: read deeper
		case !full && l.window > fair:
			l.window = max(l.window/2, fair)
			return pending, nil
		default:
			return pending, nil
		}
	}
}

func fullestShard(rows []pendingRow) (most int) {
	counts := map[int16]int{}
	for i := range rows {
		counts[rows[i].Shard]++
		most = max(most, counts[rows[i].Shard])
	}
	return most
}

// The size of a batch follows from two clocks. It must be answered within the
// lease under which it was read: on a slow machine, or under a short lease, a
// thousand events may not be, and all of them are sent again, under the same
// ids, and again without an answer. And a row that was committed late with a
// lower id waits for the batch that is under way and for its own: those should
// not take long, however busy the machine is.

// batchTime is how long a batch should take, from reading to marking.
const batchTime = 150 * time.Millisecond

// size is how many events the next batch of the lane may hold.
func (l *relayLane) size() int {
	if l.batch == 0 {
		return l.cfg.Batch
	}
	return l.batch
}

// keepPace sets the size of the next batch by the answers to this one and by
// the time it took. What the broker refuses, or cannot take at all, says
// nothing about the size.
//
// For time alone it goes no lower than a quarter: where the disk syncs slowly,
// a batch takes long whatever it holds, and small ones would be a slow drain.
func (l *relayLane) keepPace(receipts []Receipt, took time.Duration) {
	stored, unknown := 0, 0
	for _, r := range receipts {
		switch {
		case r.Err == nil:
			stored++
		case errors.Is(r.Err, ErrUnknownOutcome):
			unknown++
		}
	}
	size, least := l.size(), max(1, l.cfg.Batch/4)
	switch {
	case unknown > stored: // a few without an answer among many are at fault themselves
		l.batch = max(1, min(size, len(receipts))/2)
	case took > batchTime && len(receipts) > least && size > least:
		l.batch = max(least, int(float64(len(receipts))*batchTime.Seconds()/took.Seconds()))
	case stored > 0 && unknown == 0 && l.batch > 0 && (took < batchTime*3/4 || size < least):
		if l.batch += max(1, l.cfg.Batch/32); l.batch >= l.cfg.Batch {
			l.batch = 0
		}
	}
}
