package messaging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// What a lane publishes next: which rows, and how many.

// sqlReadPending reads each shard's oldest rows. There is no position to
// remember: a transaction that commits late with a lower id is simply read in
// the next batch (the mark that "id > last seen" readers miss).
//
// The facts are found by one scan with all keys, in the partitions that the
// batch's own first and last key leave: to join them row by row is to choose
// among all partitions for each row, which was two fifths of this statement.
// Whether anything is held at all is asked once and not for each row; what was
// tried before is mostly nothing.
const sqlReadPending = `
WITH next AS MATERIALIZED (
	SELECT q.event_id, q.attempts
	  FROM unnest($1::smallint[]) AS s(shard)
	 CROSS JOIN LATERAL (
		SELECT p.event_id, p.attempts FROM message_outbox_pending p
		 WHERE p.shard = s.shard ORDER BY p.id LIMIT $2) q
	 LIMIT $3
), tried AS MATERIALIZED (
	SELECT event_id, attempts FROM next WHERE attempts > 0
)
SELECT o.shard, o.id, o.event_id, coalesce((SELECT t.attempts FROM tried t WHERE t.event_id = o.event_id), 0) AS attempts,
       o.aggregate_type, o.aggregate_id, o.subject, o.payload, o.trace_parent, o.created_at,
       (SELECT EXISTS (SELECT 1 FROM message_outbox_held))
       AND EXISTS (SELECT 1 FROM message_outbox_held h
                    WHERE h.shard = o.shard AND h.aggregate_type = o.aggregate_type AND h.aggregate_id = o.aggregate_id AND h.id < o.id) AS held
  FROM message_outbox o
 WHERE o.event_id = ANY (ARRAY(SELECT event_id FROM next))
   AND o.event_id >= (SELECT event_id FROM next ORDER BY event_id LIMIT 1)
   AND o.event_id <= (SELECT event_id FROM next ORDER BY event_id DESC LIMIT 1)`

// read returns up to a batch of rows in id order.
func (l *relayLane) read(ctx context.Context, shards []int16) ([]pendingRow, error) {
	l.turn++
	turned := make([]int16, 0, len(shards))
	for i := range shards {
		turned = append(turned, shards[(i+l.turn)%len(shards)])
	}
	l.asked = l.size()
	for {
		fair := (l.asked + len(shards) - 1) / len(shards)
		l.window = min(max(l.window, fair), l.asked)
		pending, err := l.readRows(ctx, turned)
		if errors.Is(err, errBatchTooLarge) { // not a part of them: they do not come in id order
			l.asked = max(1, len(pending)*3/4)
			l.batch = l.asked // also if what follows fails: such a read carries all the bytes, and must not be repeated at full size
			continue
		}
		if errors.Is(err, context.DeadlineExceeded) { // the same again would take as long again, and never end
			l.batch = max(1, l.batch/2)
		}
		if err != nil {
			return nil, fmt.Errorf("read pending: %w", err)
		}
		full := fullestShard(pending) >= l.window
		switch {
		case full && len(pending) < l.asked/2 && l.window < l.asked:
			l.window = min(l.window*4, l.asked) // few shards hold the backlog: read deeper
		case !full && l.window > fair:
			l.window = max(l.window/2, fair)
			return pending, nil
		case full && len(pending) == l.asked && l.window > fair: // it may be that few shards fill it while others wait
			l.window = max(l.window*3/4, fair)
			return pending, nil
		default:
			return pending, nil
		}
	}
}

// batchBytes is the most that the payloads of one batch take: a thousand
// events of the largest size would be more than a small relay has. It holds
// that many of the largest that a batch is never empty.
const batchBytes = 32 * MaxEventBytes

var errBatchTooLarge = errors.New("the events do not fit into one batch")

// readRows returns errBatchTooLarge together with the rows that would fit.
func (l *relayLane) readRows(ctx context.Context, shards []int16) ([]pendingRow, error) {
	rows, err := l.conn.Query(ctx, sqlReadPending, shards, l.window, l.asked)
	if err != nil {
		return nil, err
	}
	pending, bytes := make([]pendingRow, 0, l.asked), 0
	var r pendingRow
	into := []any{&r.Shard, &r.ID, &r.EventID, &r.Attempts, &r.AggregateType, &r.AggregateID, &r.Subject, &r.Payload, &r.TraceParent, &r.CreatedAt, &r.Held}
	_, err = pgx.ForEachRow(rows, into, func() error {
		if bytes += len(r.Payload); bytes > batchBytes {
			return errBatchTooLarge
		}
		pending = append(pending, r)
		return nil
	})
	slices.SortFunc(pending, func(a, b pendingRow) int { return cmp.Compare(a.ID, b.ID) })
	return pending, err
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

// persistent is after how many full batches in a row a backlog is one that small
// batches do not get ahead of: each pays for its statements and its sync, and
// on a busy machine that is most of what it takes.
const persistent = 8

// size is how many events the next batch of the lane may hold. It begins with
// a quarter of what is allowed: nobody knows yet how long that takes.
func (l *relayLane) size() int {
	if l.batch == 0 {
		l.batch = l.least()
	}
	return l.batch
}

// least is the size below which time alone makes no batch: where the disk
// syncs slowly, a batch takes long whatever it holds, and small ones would be
// a slow drain.
func (l *relayLane) least() int { return max(1, l.cfg.Batch/4) }

// keepPace sets the size of the next batch by the answers to this one and by
// the time it took. What the broker refuses, or cannot take at all, says
// nothing about the size. A lane that has caught up goes back to small ones, so
// that a backlog begins with them.
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
	size, least := l.asked, l.least()
	inTime := int(float64(len(receipts)) * batchTime.Seconds() / max(took, time.Millisecond).Seconds())
	if len(receipts) < size/2 {
		l.full = 0
	} else {
		l.full++
	}
	switch {
	case unknown > stored: // a few without an answer among many are at fault themselves
		l.batch = max(1, min(size, len(receipts))/2)
	case stored == 0 || unknown > 0:
	case size < least: // there was no answer before: carefully
		l.batch = min(least, size+max(1, l.cfg.Batch/32))
	case l.full == 0: // it has caught up, or nearly
		l.batch = max(least, size/2)
	case l.full > persistent: // whoever waits, waits for the backlog and not for one batch
		l.batch = min(l.cfg.Batch, 2*size)
	default:
		l.batch = min(max(least, inTime), 2*size, l.cfg.Batch)
	}
}
