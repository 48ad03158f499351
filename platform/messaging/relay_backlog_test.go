package messaging_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/pgtest"
)

// sqlBacklog stages events in one transaction, so that every row of the queue
// has the same xmin until somebody writes it again. Their ids are of this
// month, like the one event that is there already.
const sqlBacklog = `
WITH staged AS (
	INSERT INTO message_outbox (event_id, shard, aggregate_type, aggregate_id, aggregate_version, kind, subject, payload)
	SELECT (left(pattern.event_id::text, 14) || '7' || substr(md5(i::text), 2, 3) || '-8' || substr(md5(i::text), 6, 3) || '-' || substr(md5(i::text), 10, 12))::uuid,
	       i % 64, 'thing', 'thing-' || i, 1, pattern.kind, pattern.subject, convert_to(format('{"data":{"n":%s}}', i), 'UTF8')
	  FROM (SELECT event_id, kind, subject FROM message_outbox LIMIT 1) AS pattern, generate_series(1, $1) AS i
	RETURNING shard, id, event_id
)
INSERT INTO message_outbox_pending (shard, id, event_id) SELECT shard, id, event_id FROM staged`

// C28: where rows are leased, somebody must give back all that a dead relay
// had leased, and writers wait for that. Here shards are leased: another relay
// takes 64 rows over, however many events wait behind them, writes none of
// those, and begins with the oldest.
func TestTakingOverADeadRelaysBacklogWritesNoneOfItsRows(t *testing.T) {
	t.Parallel()
	const backlog = 50_000
	pool := pgtest.New(t, "messaging")
	stage(t, pool, messaging.New("first", 1, changed{}))
	for _, sql := range []string{
		fmt.Sprintf(`UPDATE relay_lease SET owner = 'dead', epoch = epoch + 1, lease_until = now() + interval '1 s' WHERE shard < %d`, messaging.Shards),
		`DELETE FROM message_outbox_pending`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), sqlBacklog, backlog); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	newest := 0
	broker := newRecorder()
	broker.setAnswer(func(m messaging.Message) error {
		mu.Lock()
		defer mu.Unlock()
		newest = max(newest, number(t, m))
		return messaging.ErrUnavailable
	})
	startRelay(t, pool, broker, messaging.RelayConfig{Name: "heir", Lease: 2 * time.Second})
	awaitCount(t, pool, messaging.Shards, `SELECT count(*) FROM relay_lease WHERE owner = 'heir'`)
	eventually(t, 20*time.Second, func() string { return "nothing is published" }, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return newest > 0
	})
	stage(t, pool, messaging.New("writer", 1, changed{N: backlog + 1})) // nobody waits for anybody

	if got := count(t, pool, `SELECT count(*) FROM message_outbox_pending GROUP BY xmin ORDER BY 1 DESC LIMIT 1`); got != backlog {
		t.Errorf("got %d rows as they were staged, want all %d", got, backlog)
	}
	mu.Lock()
	defer mu.Unlock()
	if newest > backlog/10 {
		t.Errorf("got event %d in the first batches, want the oldest", newest)
	}
}
