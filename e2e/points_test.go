package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
	"orderpaid/platform/service/servicetest"
	"orderpaid/services/points"
)

// orderPaid is what this test needs to state of the contract's OrderPaid.
type orderPaid struct {
	OrderID     string    `json:"order_id"`
	UserID      string    `json:"user_id"`
	PaymentID   string    `json:"payment_id"`
	PointsDelta int64     `json:"points_delta"`
	PaidAt      time.Time `json:"paid_at"`
}

func (orderPaid) Kind() messaging.Kind {
	return messaging.Kind{Context: "order", Type: "OrderPaid", Version: 1, Aggregate: "order"}
}

func TestThreeReplicasOfPointsAwardEachOrderOnceWhenTheActiveOneIsKilled(t *testing.T) {
	t.Parallel()
	const orders, users = 20_000, 100
	orderDB, pointsDB, broker := pgtest.New(t, "messaging"), pgtest.New(t, "points"), natstest.New(t)
	ensureTopology(t, broker.URL(), points.Subscriptions()...)
	var replicas []*child
	for n := range 3 {
		replicas = append(replicas, start(t, fmt.Sprintf("points-%d", n+1), "points", "HTTP_ADDR="+servicetest.FreeAddr(t),
			"DATABASE_URL="+pointsDB.Config().ConnString(), "NATS_URL="+broker.URL()))
	}
	for _, replica := range replicas {
		replica.awaitReady(t)
	}

	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order"})
	if err != nil {
		t.Fatal(err)
	}
	var drafts []messaging.Draft
	var total int
	for i := range orders {
		id := fmt.Sprintf("ord_%032x", i)
		drafts = append(drafts, messaging.New(id, 2, orderPaid{id, fmt.Sprintf("u-%04d", i%users), "pay-" + id, int64(i % 7), time.Now()}))
		total += i % 7
	}
	for part := range slices.Chunk(drafts, 1000) {
		err := postgres.InTx(t.Context(), orderDB, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, part...) })
		if err != nil {
			t.Fatal(err)
		}
	}
	startRelay(t, 1, "order", orderDB.Config().ConnString(), broker.URL())

	entries := func() int { return count(t, pointsDB, `SELECT count(*) FROM points_entry`) }
	eventually(t, 2*time.Minute, "a part is booked", func() bool { return entries() >= orders/10 })
	killActive(t, replicas, count(t, pointsDB, `SELECT split_part(owner, '-', -2)::int FROM consumer_lease WHERE consumer = 'points-awarder'`))
	if entries() == orders {
		t.Fatal("the active replica was killed too late to be in the middle")
	}
	eventually(t, 2*time.Minute, "another one books the rest", func() bool { return entries() == orders })

	for what, sql := range map[string]string{
		"points in the ledger":   `SELECT sum(points) FROM points_entry`,
		"points in the balances": `SELECT sum(balance) FROM points_balance`,
	} {
		if got := count(t, pointsDB, sql); got != total {
			t.Errorf("%d %s, want %d", got, what, total)
		}
	}
	for what, sql := range map[string]string{
		"inbox rows":           `SELECT count(*) FROM message_inbox WHERE result = 'applied'`,
		"events PointsAwarded": `SELECT count(DISTINCT aggregate_id) FROM message_outbox WHERE kind = 'PointsAwarded.v1'`,
		"rows of the outbox":   `SELECT count(*) FROM message_outbox`,
	} {
		if got := count(t, pointsDB, sql); got != orders {
			t.Errorf("%d %s, want %d", got, what, orders)
		}
	}
}

// killActive kills the replica with this process id.
func killActive(t *testing.T, replicas []*child, pid int) {
	t.Helper()
	var known []string
	for _, replica := range replicas {
		if replica.cmd.Process.Pid == pid {
			replica.kill()
			return
		}
		known = append(known, fmt.Sprint(replica.cmd.Process.Pid))
	}
	t.Fatalf("the active replica is process %d, which is none of %s", pid, strings.Join(known, ", "))
}
