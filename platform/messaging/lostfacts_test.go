package messaging_test

import (
	"fmt"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/pgtest"
)

// C137: a database was restored in parts, and the queue has rows of which the
// facts are gone. They are more than a relay reads of their shard at a time.
func TestRowsWhoseFactsAreGoneHoldNobodyElseUp(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	const gone = 300
	for i := range gone {
		stage(t, pool, messaging.New("gone", int64(i+1), changed{N: i}))
	}
	behind := "behind"
	for i := 0; messaging.ShardOf(behind) != messaging.ShardOf("gone"); i++ {
		behind = fmt.Sprintf("behind-%d", i)
	}
	stage(t, pool, messaging.New(behind, 1, changed{N: 1}))
	exec(t, pool, `CREATE TABLE kept AS SELECT * FROM message_outbox WHERE aggregate_id = 'gone'`)
	exec(t, pool, `DELETE FROM message_outbox WHERE aggregate_id = 'gone'`)
	startRelay(t, pool, newRecorder(), messaging.RelayConfig{Logger: quiet})
	awaitCount(t, pool, 1, sqlCountPublished)
	awaitCount(t, pool, gone, `SELECT count(*) FROM message_outbox_held WHERE state = 'failed' AND last_error = 'its fact is missing'`)

	// Somebody brings them back and releases one: they share their fate.
	exec(t, pool, `INSERT INTO message_outbox SELECT * FROM kept`)
	exec(t, pool, `UPDATE message_outbox_held SET state = 'backoff', available_at = clock_timestamp() WHERE id = (SELECT min(id) FROM message_outbox_held)`)
	awaitCount(t, pool, gone+1, sqlCountPublished)
}
