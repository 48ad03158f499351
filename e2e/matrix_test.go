package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/faults"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgserver"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
	"orderpaid/platform/service/servicetest"
	"orderpaid/services/points"
)

// The failure matrix as code: docs/03-failure-matrix.md has a row for each
// case of TestCrash, and tools/matrixcheck compares them. A process dies by
// SIGKILL at a named point, another one takes its place, and in the end every
// effect is there once.

// orderRefunded is what these tests state of the contract's OrderRefunded.
type orderRefunded struct {
	OrderID     string    `json:"order_id"`
	UserID      string    `json:"user_id"`
	RefundID    string    `json:"refund_id"`
	PointsDelta int64     `json:"points_delta"`
	RefundedAt  time.Time `json:"refunded_at"`
}

func (orderRefunded) Kind() messaging.Kind {
	return messaging.Kind{Context: "order", Type: "OrderRefunded", Version: 1, Aggregate: "order"}
}

// A line is the part of the shop that most crashes are about: an outbox, the
// relay, the stream, and points.
type line struct {
	orderDB, pointsDB *pgxpool.Pool
	natsURL           string
	staged            []uuid.UUID

	// What the processes connect to: the same, unless a proxy stands between.
	orderDSN, pointsDSN, childNATS string

	orders, refunds int
	total           int64
}

// newLine makes the databases on a server with fsync on, and starts a broker.
func newLine(t *testing.T, srv *pgserver.Server) *line {
	t.Helper()
	// What a dead consumer has not answered comes again soon.
	return newLineAt(t, srv, natstest.New(t).URL(), natsbroker.Topology{AckWait: 5 * time.Second})
}

// newLineAt makes the databases, and the topology of a broker that runs.
func newLineAt(t *testing.T, srv *pgserver.Server, natsURL string, topology natsbroker.Topology) *line {
	t.Helper()
	topology.Subscriptions = points.Subscriptions()
	if err := natsbroker.EnsureTopology(t.Context(), natsURL, topology); err != nil {
		t.Fatal(err)
	}
	l := &line{orderDB: onServer(t, srv, "messaging"), pointsDB: onServer(t, srv, "points"), natsURL: natsURL}
	l.orderDSN, l.pointsDSN = l.orderDB.Config().ConnString(), l.pointsDB.Config().ConnString()
	l.childNATS = natsURL
	return l
}

// onServer makes a database of its own for this test on a shared server.
// options are those of CREATE DATABASE.
func onServer(t *testing.T, srv *pgserver.Server, owner string, options ...string) *pgxpool.Pool {
	t.Helper()
	name := strings.ToLower(owner + "_" + uuid.NewString()[:8])
	admin, err := pgx.Connect(t.Context(), srv.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name+" "+strings.Join(options, " ")); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), srv.DSN(name), owner); err != nil {
		t.Fatal(err)
	}
	return openPool(t, srv.DSN(name))
}

func openPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), dsn, postgres.Config{ApplicationName: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// pay stages n payments, each worth 1 to 7 points, in one transaction.
func (l *line) pay(t *testing.T, n int) {
	t.Helper()
	drafts := make([]messaging.Draft, n)
	for i := range drafts {
		id, worth := fmt.Sprintf("ord_%032x", l.orders+i), int64(i%7+1)
		drafts[i] = messaging.New(id, 2, orderPaid{id, "u-" + id[len(id)-2:], "pay-" + id, worth, time.Now()})
		l.total += worth
	}
	l.orders += n
	l.commit(t, drafts)
}

// refundUnpaid stages n refunds whose payments have not come yet: they fail,
// are recorded, and wait.
func (l *line) refundUnpaid(t *testing.T, n int) {
	t.Helper()
	drafts := make([]messaging.Draft, n)
	for i := range drafts {
		id := fmt.Sprintf("ord_%032x", i)
		drafts[i] = messaging.New(id, 3, orderRefunded{id, "u-" + id[len(id)-2:], "ref-" + id, -1, time.Now()})
		l.total--
	}
	l.refunds += n
	l.commit(t, drafts)
}

func (l *line) commit(t *testing.T, drafts []messaging.Draft) {
	t.Helper()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order"})
	if err != nil {
		t.Fatal(err)
	}
	err = postgres.InTx(t.Context(), l.orderDB, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, drafts...) })
	if err != nil {
		t.Fatal(err)
	}
	for _, draft := range drafts {
		l.staged = append(l.staged, draft.ID())
	}
}

func (l *line) relay(t *testing.T, n int, env ...string) *child {
	t.Helper()
	return start(t, fmt.Sprintf("relay-%d", n), "relay", append([]string{"RELAY_DATABASES=order=" + l.orderDSN,
		"NATS_URL=" + l.childNATS, "RELAY_LEASE=2s", "RELAY_BATCH=50"}, env...)...)
}

func (l *line) points(t *testing.T, n int, env ...string) *child {
	t.Helper()
	return start(t, fmt.Sprintf("points-%d", n), "points", append([]string{"HTTP_ADDR=" + servicetest.FreeAddr(t),
		"DATABASE_URL=" + l.pointsDSN, "NATS_URL=" + l.childNATS, "CONSUMER_LEASE=2s"}, env...)...)
}

// requireOnce waits until everything has had its effect, reports how long that
// took since the fault, and fails the test unless each has had its effect once
// and the evidence says so.
func (l *line) requireOnce(t *testing.T, since time.Time) {
	t.Helper()
	entries := l.orders + l.refunds
	defer func() {
		report(t, since, entries-count(t, l.pointsDB, `SELECT count(DISTINCT (order_id, kind, refund_id)) FROM points_entry`),
			count(t, l.pointsDB, `SELECT count(*) - count(DISTINCT (order_id, kind, refund_id)) FROM points_entry`))
	}()
	eventually(t, time.Minute, fmt.Sprintf("%d entries in the ledger", entries), func() bool {
		return count(t, l.pointsDB, `SELECT count(*) FROM points_entry`) == entries
	})
	eventually(t, time.Minute, "the queue is empty", func() bool { return pending(t, l.orderDB) == 0 })
	requireDrained(t, jetStream(t, l.natsURL)) // what is on its way still could do something a second time
	for _, check := range []struct {
		what string
		db   *pgxpool.Pool
		sql  string
		want int
	}{
		{"points in the ledger", l.pointsDB, `SELECT coalesce(sum(points), 0) FROM points_entry`, int(l.total)},
		{"points in the balances", l.pointsDB, `SELECT coalesce(sum(balance), 0) FROM points_balance`, int(l.total)},
		{"inbox rows", l.pointsDB, `SELECT count(*) FROM message_inbox WHERE result = 'applied'`, entries},
		{"events about entries", l.pointsDB, `SELECT count(DISTINCT aggregate_id) FROM message_outbox`, entries},
		{"unresolved failures", l.pointsDB, `SELECT count(*) FROM message_failure WHERE state NOT IN ('resolved')`, 0},
		{"held events", l.orderDB, `SELECT count(*) FROM message_outbox_held`, 0},
		{"publications with evidence", l.orderDB, `SELECT count(*) FROM message_outbox_publication WHERE stream = 'EVENTS' AND stream_seq > 0`, len(l.staged)},
	} {
		if got := count(t, check.db, check.sql); got != check.want {
			t.Errorf("%d %s, want %d", got, check.what, check.want)
		}
	}
	if l.refunds > 0 { // they were staged ahead of their payments on purpose
		requireStored(t, l.natsURL, l.staged)
		return
	}
	requireOnStream(t, l.natsURL, l.staged)
}

// awaitDeath returns when the process has killed itself, and fails the test if
// it ends in another way.
func (c *child) awaitDeath(t *testing.T) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		t.Fatalf("%s has not come to its crash point within a minute", c.name)
	}
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%s ended with %v, want its own SIGKILL", c.name, c.err)
	}
}

// report says what a fault has cost, on a line of its own that scripts/faults
// makes a table of. since is the moment from which the shop could recover.
func report(t *testing.T, since time.Time, lost, duplicated int) {
	t.Helper()
	row, err := json.Marshal(map[string]any{
		"row": t.Name(), "lost": lost, "duplicated": duplicated, "seconds": time.Since(since).Round(time.Millisecond).Seconds(),
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stdout, "faults: %s\n", row)
}

// TestCrash kills one process at one named point, starts another in its place,
// and looks at the end.
func TestCrash(t *testing.T) {
	t.Parallel()
	srv := pgtest.Durable(t)
	for _, point := range []string{"order.before_commit", "order.after_commit"} {
		t.Run(point, func(t *testing.T) { t.Parallel(); crashOrder(t, srv, point) })
	}
	for _, point := range []string{
		"relay.before_publish", "relay.after_publish_before_ack", "relay.after_ack_before_mark", "relay.inside_takeover",
	} {
		t.Run(point, func(t *testing.T) { t.Parallel(); crashRelay(t, srv, point) })
	}
	for _, point := range []string{"consumer.before_commit", "consumer.after_commit_before_ack", "consumer.after_ack"} {
		t.Run(point, func(t *testing.T) { t.Parallel(); crashPoints(t, srv, point) })
	}
	for _, point := range []string{"failure.before_commit", "failure.after_commit_before_ack", "failure.after_retry"} {
		t.Run(point, func(t *testing.T) { t.Parallel(); crashFailing(t, srv, point) })
	}
	t.Run("replay.after_apply_before_done", func(t *testing.T) { t.Parallel(); crashReplay(t, srv) })
	t.Run("relay.inside_mark", func(t *testing.T) { t.Parallel(); crashMark(t, srv) })
}

func crashRelay(t *testing.T, srv *pgserver.Server, point string) {
	l := newLine(t, srv)
	nth := ":3"
	if point == "relay.inside_takeover" {
		nth = ":1" // it claims all shards at once
	}
	if point == "relay.after_publish_before_ack" {
		l.pay(t, 10) // few enough that they go message by message, and not in one atomic batch
		nth = ":1"
	} else {
		l.pay(t, 600)
	}
	l.points(t, 1)
	victim := l.relay(t, 1, faults.Env+"="+point+nth)
	victim.awaitDeath(t)
	died := time.Now()
	l.pay(t, 50)
	l.relay(t, 2)
	l.requireOnce(t, died)
	again := count(t, l.orderDB, `SELECT count(*) FROM message_outbox_publication WHERE duplicate`)
	if point == "relay.after_ack_before_mark" && again == 0 {
		t.Error("nothing was sent a second time: the crash was not where it should be")
	}
}

func crashPoints(t *testing.T, srv *pgserver.Server, point string) {
	l := newLine(t, srv)
	victim := l.points(t, 1, faults.Env+"="+point+":2")
	l.relay(t, 1)
	l.pay(t, 200)
	eventually(t, time.Minute, "a first group is booked", func() bool { return count(t, l.pointsDB, `SELECT count(*) FROM points_entry`) > 0 })
	l.pay(t, 400)
	victim.awaitDeath(t)
	died := time.Now()
	heir := l.points(t, 2)
	l.requireOnce(t, died)
	if point == "consumer.after_commit_before_ack" && heir.metric(t, `shop_consumer_events_total\{.*result="duplicate"`) == 0 {
		t.Error("no event was recognised as a duplicate: the crash was not where it should be")
	}
}

func crashFailing(t *testing.T, srv *pgserver.Server, point string) {
	l := newLine(t, srv)
	victim := l.points(t, 1, faults.Env+"="+point+":3")
	l.relay(t, 1)
	l.refundUnpaid(t, 20)
	if point == "failure.after_retry" {
		eventually(t, time.Minute, "the refunds are recorded", func() bool {
			return count(t, l.pointsDB, `SELECT count(*) FROM message_failure WHERE state = 'retrying'`) == l.refunds
		})
		l.pay(t, 100)
	}
	victim.awaitDeath(t)
	died := time.Now()
	l.points(t, 2)
	if l.orders == 0 {
		l.pay(t, 100)
	}
	l.requireOnce(t, died)
}

// crashReplay kills points in the middle of a replay of what it has applied
// and of what it has not.
func crashReplay(t *testing.T, srv *pgserver.Server) {
	l := newLine(t, srv)
	l.pay(t, 300)
	rows, err := l.orderDB.Query(t.Context(), `SELECT payload FROM message_outbox ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	planner := messaging.NewConsumer("points-awarder", l.pointsDB, nil, messaging.ConsumerConfig{})
	messaging.Handle(planner, func(context.Context, pgx.Tx, messaging.Event[orderPaid]) error { return nil })
	actor := messaging.Actor{Name: "mei", Reason: "the stream was lost"}
	id, _, err := planner.CreateReplay(t.Context(), messaging.ReplayRequest{Source: "outbox", Events: events, Actor: actor, PerSecond: 2000})
	if err != nil {
		t.Fatal(err)
	}
	if err := messaging.NewReplays(l.pointsDB).Start(t.Context(), id, actor); err != nil {
		t.Fatal(err)
	}
	victim := l.points(t, 1, faults.Env+"=replay.after_apply_before_done:2")
	victim.awaitDeath(t)
	died := time.Now()
	l.points(t, 2)
	eventually(t, time.Minute, "the replay is done", func() bool {
		return count(t, l.pointsDB, `SELECT count(*) FROM message_replay WHERE state = 'done' AND (report->>'without_effect')::int = 0`) == 1
	})
	l.relay(t, 1) // now the live events come as well, and find everything done
	l.requireOnce(t, died)
}

// crashMark kills a relay while the statement that turns queue rows into
// evidence waits in the database: the whole batch is marked, or nothing of it.
func crashMark(t *testing.T, srv *pgserver.Server) {
	l := newLine(t, srv)
	l.pay(t, 200)
	blocker, err := l.orderDB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), `SELECT FROM message_outbox_pending ORDER BY shard, id OFFSET 20 LIMIT 1 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	victim := l.relay(t, 1)
	eventually(t, time.Minute, "a mark waits for the locked row", func() bool {
		return count(t, l.orderDB, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%message_outbox_publication%' AND datname = current_database()`) > 0
	})
	victim.kill()
	died := time.Now()
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the statement has ended", func() bool {
		return count(t, l.orderDB, `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'relay%' AND datname = current_database()`) == 0
	})
	both := count(t, l.orderDB, `SELECT count(*) FROM message_outbox_pending p JOIN message_outbox_publication b ON b.event_id = p.event_id`)
	neither := count(t, l.orderDB, `SELECT count(*) FROM message_outbox o WHERE NOT EXISTS (SELECT FROM message_outbox_pending p WHERE p.event_id = o.event_id)
		AND NOT EXISTS (SELECT FROM message_outbox_publication b WHERE b.event_id = o.event_id)`)
	if both+neither != 0 {
		t.Errorf("%d events are both queued and published, %d are neither", both, neither)
	}
	l.points(t, 1)
	l.relay(t, 2)
	l.requireOnce(t, died)
}
