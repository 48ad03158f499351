package messaging_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/pgtest"
)

const sqlCountPublished = `SELECT count(*) FROM message_outbox_publication`

// requireOrder fails if a later version of an aggregate was stored before an
// earlier one, counting each event by its first appearance.
func requireOrder(t *testing.T, messages []messaging.Message) {
	t.Helper()
	last := map[string]int{}
	for _, m := range messages {
		n := number(t, m)
		if previous, ok := last[m.Key]; ok && n < previous {
			t.Fatalf("event %d of %s was stored after event %d", n, m.Key, previous)
		}
		last[m.Key] = n
	}
}

func number(t *testing.T, m messaging.Message) (n int) {
	t.Helper()
	_, data, _ := strings.Cut(string(m.Data), `"data":{"n":`)
	if _, err := fmt.Sscanf(data, "%d", &n); err != nil {
		t.Fatalf("%s: %v", m.Data, err)
	}
	return n
}

func TestEveryCommittedEventIsPublishedInOrderWithEvidence(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 3000, 40)
	broker := newRecorder()
	startRelay(t, pool, broker, messaging.RelayConfig{Name: "r1"})
	awaitCount(t, pool, 3000, sqlCountPublished)
	requireOrder(t, broker.messages())
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_pending`); got != 0 {
		t.Errorf("got %d rows left in the queue, want 0", got)
	}
	wrong := count(t, pool, `SELECT count(*) FROM message_outbox_state WHERE state <> 'published' OR published_by <> 'r1' OR stream <> 'TEST' OR stream_seq < 1`)
	if wrong != 0 {
		t.Errorf("got %d events without proper evidence, want 0", wrong)
	}
}

// C30: ids come from a sequence, so they commit out of order. Nothing may
// remember "the last id seen".
func TestAnEventCommittedLateWithALowerIDIsPublished(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	broker := newRecorder()
	startRelay(t, pool, broker, messaging.RelayConfig{})
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if err := newOutbox(t, nil).Add(t.Context(), tx, messaging.New("slow", 1, changed{N: 1})); err != nil {
		t.Fatal(err)
	}
	stage(t, pool, messaging.New("fast", 1, changed{N: 1}))
	awaitCount(t, pool, 1, sqlCountPublished)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitCount(t, pool, 2, sqlCountPublished)
}

func TestAHintWakesTheLaneThatHoldsItsShard(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	hints := make(chan messaging.ShardSet)
	startRelay(t, pool, newRecorder(), messaging.RelayConfig{Poll: time.Hour, Wake: hints})
	awaitCount(t, pool, messaging.Shards, `SELECT count(*) FROM relay_lease WHERE lease_until > now()`)
	staged := 0
	for _, id := range []string{"a", "b", "c", "d"} { // of different lanes
		stage(t, pool, messaging.New(id, 1, changed{N: 1}))
		staged++
		eventually(t, 20*time.Second, func() string { return "the hint about " + id + " wakes nobody" }, func() bool {
			hints <- messaging.ShardSet(0).With(messaging.ShardOf(id))
			return count(t, pool, sqlCountPublished) == staged
		})
	}
}

// C51: while the broker is away no event uses up its attempts.
func TestAnOutageOfTheBrokerCountsAgainstNoEvent(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	broker := newRecorder()
	var asked atomic.Int64
	broker.setAnswer(func(messaging.Message) error { asked.Add(1); return messaging.ErrUnavailable })
	stageMany(t, pool, 100, 10)
	startRelay(t, pool, broker, messaging.RelayConfig{})
	eventually(t, 20*time.Second, func() string { return "the relay does not try again" }, func() bool { return asked.Load() > 40 })
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_pending WHERE attempts = 0`); got != 100 {
		t.Errorf("got %d events without an attempt, want 100", got)
	}
	broker.setAnswer(nil)
	awaitCount(t, pool, 100, sqlCountPublished)
	requireOrder(t, broker.messages())
}

// C11, C34: one event that the broker refuses stops its own aggregate, keeps
// its followers behind it, and nobody else.
func TestARefusedEventHoldsItsAggregateAndNoOther(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 200, 10)
	broker := newRecorder()
	refuse := func(m messaging.Message) error {
		if m.Key == "thing/thing-3" && number(t, m) == 53 {
			return messaging.ErrRefused
		}
		return nil
	}
	broker.setAnswer(refuse)
	startRelay(t, pool, broker, messaging.RelayConfig{})
	awaitCount(t, pool, 185, sqlCountPublished) // 10 aggregates of 20; thing-3 stops after 5
	awaitCount(t, pool, 15, `SELECT count(*) FROM message_outbox_held WHERE aggregate_id = 'thing-3'`)
	stage(t, pool, messaging.New("thing-3", 21, changed{N: 203}))
	awaitCount(t, pool, 16, `SELECT count(*) FROM message_outbox_held WHERE aggregate_id = 'thing-3'`)
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_held WHERE state = 'failed' AND attempts = 1`); got != 1 {
		t.Errorf("got %d failed events, want 1", got)
	}

	broker.setAnswer(nil) // mended; a person says: try again
	if _, err := pool.Exec(t.Context(), `UPDATE message_outbox_held SET state = 'backoff', available_at = now() WHERE state = 'failed'`); err != nil {
		t.Fatal(err)
	}
	awaitCount(t, pool, 201, sqlCountPublished)
	requireOrder(t, broker.messages())
}

// The heart of the matter: relays come, die in the middle and freeze past
// their leases, and still each event is stored, in order. A relay that is
// "killed" here never gets to mark what the broker has stored.
func TestRelayLeaseRecovery(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 2000, 50)
	broker := newRecorder()
	victim := &killablePublisher{Publisher: broker, after: 5, killed: make(chan struct{})}
	victimPool := separatePool(t, pool)
	victim.kill = victimPool.Close
	relay, err := messaging.NewRelay(victimPool, victim, messaging.RelayConfig{Name: "victim", Lease: time.Second, Batch: 100})
	if err != nil {
		t.Fatal(err)
	}
	stop := background(t, relay.Run)
	<-victim.killed
	startRelay(t, pool, broker, messaging.RelayConfig{Name: "heir-1", Lease: time.Second, Batch: 100})
	startRelay(t, pool, broker, messaging.RelayConfig{Name: "heir-2", Lease: time.Second, Batch: 100})
	started := time.Now()
	awaitCount(t, pool, 2000, sqlCountPublished)
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("took %v, want the victim's shards to move within its lease and 1 s", took)
	}
	stop()
	requireOrder(t, broker.messages())
	if got := len(broker.messages()); got != 2000 {
		t.Errorf("got %d events stored, want 2000", got)
	}
}

// killablePublisher lets a relay publish some batches and then cuts its
// database off, so that what it has just published stays unmarked.
type killablePublisher struct {
	messaging.Publisher
	after  int32
	calls  atomic.Int32
	kill   func()
	killed chan struct{}
	once   sync.Once
}

func (k *killablePublisher) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	receipts := k.Publisher.Publish(ctx, messages)
	if k.calls.Add(1) >= k.after {
		k.once.Do(func() { go k.kill(); close(k.killed) })
		return make([]messaging.Receipt, len(messages))
	}
	return receipts
}

func separatePool(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	other, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

func TestRelaysShareTheShardsFairlyAndTakeOverWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	broker := newRecorder()
	holds := func(relay string) int {
		return count(t, pool, `SELECT count(*) FROM relay_lease WHERE owner = $1 AND lease_until > clock_timestamp()`, relay)
	}
	awaitShares := func(want map[string]int) {
		t.Helper()
		got := map[string]int{}
		eventually(t, 20*time.Second, func() string { return fmt.Sprintf("got shares %v, want %v", got, want) }, func() bool {
			same := true
			for relay, share := range want {
				got[relay] = holds(relay)
				same = same && got[relay] == share
			}
			return same
		})
	}
	cfg := func(name string) messaging.RelayConfig {
		return messaging.RelayConfig{Name: name, Lease: 2 * time.Second}
	}
	startRelay(t, pool, broker, cfg("a"))
	awaitShares(map[string]int{"a": 64})
	stopB := startRelay(t, pool, broker, cfg("b"))
	awaitShares(map[string]int{"a": 32, "b": 32})
	startRelay(t, pool, broker, cfg("c"))
	eventually(t, 20*time.Second, func() string { return "three relays do not share" }, func() bool {
		a, b, c := holds("a"), holds("b"), holds("c")
		return a+b+c == 64 && max(a, b, c) <= 22
	})
	stopB()
	awaitShares(map[string]int{"a": 32, "c": 32})
}

// C24: a clean stop finishes what is on the way, marks nothing that was not
// acknowledged, counts nothing, and leaves the shards free at once.
func TestAStoppedRelayLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	broker := newRecorder()
	entered, gate := make(chan struct{}, 8), make(chan struct{})
	broker.onCall = func() { entered <- struct{}{}; <-gate }
	stageMany(t, pool, 100, 10)
	stop := startRelay(t, pool, broker, messaging.RelayConfig{Name: "stopping", Batch: 20})
	<-entered
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(gate)
	<-stopped
	stored := len(broker.messages())
	if got := count(t, pool, sqlCountPublished); got != stored || stored == 100 {
		t.Errorf("got %d events marked of %d stored, want as many, and fewer than all", got, stored)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_pending WHERE attempts = 0 AND available_at <= now()`); got != 100-stored {
		t.Errorf("got %d events ready for the next relay, want %d", got, 100-stored)
	}
	if got := count(t, pool, `SELECT count(*) FROM relay_lease WHERE lease_until > clock_timestamp()`); got != 0 {
		t.Errorf("got %d shards still leased, want 0", got)
	}
}

// A plan made while the queue was empty must not be used when it is full: the
// reading statement has to go by the indexes from the first time.
func TestReadingPlansStayOnTheIndexWhateverTheStatisticsSay(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "ANALYZE message_outbox_pending; ANALYZE message_outbox"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), messaging.SQLPinPlans); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), "EXPLAIN "+messaging.SQLReadPending, []int16{1, 2, 3}, 100, 1000)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Bitmap") || !strings.Contains(plan, "message_outbox_pending_pkey") {
		t.Errorf("got a plan that is not on the index:\n%s", plan)
	}
}

// While a transaction stays open nothing can be vacuumed, and statistics that
// were taken when all of it was dead say that the queue is empty. To mark a
// batch must not become a walk over all of it.
func TestMarkingGoesByTheKeysWhateverTheStatisticsSay(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 2000, 100)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `UPDATE pg_class SET reltuples = 0, relpages = 1000 WHERE relname = 'message_outbox_pending'`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), messaging.SQLPinPlans); err != nil {
		t.Fatal(err)
	}
	mark := strings.NewReplacer("@shards", "ARRAY(SELECT 1)", "@ids", "ARRAY(SELECT 1)", "@seqs", "ARRAY(SELECT 1)",
		"@stream", "'TEST'", "@duplicate", "false", "@relay", "'r1'").Replace(messaging.SQLMark)
	rows, err := conn.Query(t.Context(), "EXPLAIN "+mark)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	if strings.Contains(plan, "Join Filter") || strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "Index Cond: ((shard = u.shard) AND (id = u.id))") || !strings.Contains(plan, "TID Cond") {
		t.Errorf("got a plan that does not look up each key:\n%s", plan)
	}
}
