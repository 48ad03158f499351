package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/demo"
	"orderpaid/platform/faults"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/shopctl"
)

// operatorToken is what Alice shows to the services' ops APIs.
const operatorToken = "alice-alice-alice-alice"

// A reconciled shop is one that can lose its stream, and whose operator can
// look for what is lost.
type reconciled struct {
	orderDB, pointsDB *pgxpool.Pool
	natsURL           string
	services          string // the ops APIs, as shopctl wants them
}

// The stream is gone, and shopctl dies between two of the commands that fill
// it again. It is run again, and each event comes back once, with one row in
// the audit log that says who asked for it.
func TestARepairKilledBetweenTwoCommandsIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	shop := newReconciled(t)
	before, events := shop.effects(t), shop.events(t)
	if err := jetStream(t, shop.natsURL).DeleteStream(t.Context(), natsbroker.DefaultStream); err != nil {
		t.Fatal(err)
	}
	if err := natsbroker.EnsureTopology(t.Context(), shop.natsURL, shopctl.Topology()); err != nil {
		t.Fatal(err)
	}

	if _, err := shop.repair("reconcile.between_repairs"); !killed(err) {
		t.Fatalf("the first repair ended with %v, want its own SIGKILL", err)
	}
	died := time.Now()
	first := shop.repaired(t)
	if len(first) == 0 || len(first) == len(events) {
		t.Fatalf("%d of %d events are queued again: the crash was not in the middle", len(first), len(events))
	}
	if out, err := shop.repair(""); exitCode(err) != 1 { // it has found what was left
		t.Fatalf("the second repair ended with %v:\n%s", err, out)
	}
	startRelays(t, shop)
	eventually(t, time.Minute, "all is published again", func() bool { return pending(t, shop.orderDB)+pending(t, shop.pointsDB) == 0 })

	queued, once := shop.repaired(t), map[uuid.UUID]bool{}
	for _, id := range queued {
		once[id] = true
	}
	report(t, died, len(events)-len(once), len(queued)-len(once))
	if len(queued) != len(events) || len(once) != len(events) {
		t.Errorf("the audit log says that %d events were queued again, %d of them different, want %d", len(queued), len(once), len(events))
	}
	if audit := requireStored(t, shop.natsURL, events); audit.Copies != 0 {
		t.Errorf("%d messages are copies of an event that was there", audit.Copies)
	}
	requireDrained(t, jetStream(t, shop.natsURL))
	if got := shop.effects(t); got != before {
		t.Errorf("after the repair there are %d effects, want the %d of before", got, before)
	}
	if out, err := shop.reconcile(""); err != nil {
		t.Errorf("afterwards there are findings still: %v\n%s", err, out)
	}
}

// newReconciled starts order and points, and returns when the orders of a
// load, more than one command of a repair names, have had all their effects.
// Nobody relays then.
func newReconciled(t *testing.T) *reconciled {
	t.Helper()
	srv, broker := pgtest.Durable(t), natstest.New(t)
	shop := &reconciled{orderDB: onServer(t, srv, "order"), pointsDB: onServer(t, srv, "points"), natsURL: broker.URL()}
	if err := natsbroker.EnsureTopology(t.Context(), shop.natsURL, shopctl.Topology()); err != nil {
		t.Fatal(err)
	}
	api, secret := freeAddress(t), webhookSecret()
	orders := start(t, "order", "order", "HTTP_ADDR="+api, "DATABASE_URL="+shop.orderDB.Config().ConnString(), "NATS_URL="+shop.natsURL,
		"WEBHOOK_SECRETS="+secret, "OPS_TOKENS=alice:operator:"+operatorToken)
	points := start(t, "points", "points", "HTTP_ADDR="+freeAddress(t), "DATABASE_URL="+shop.pointsDB.Config().ConnString(), "NATS_URL="+shop.natsURL,
		"OPS_TOKENS=alice:operator:"+operatorToken)
	shop.services = "order=" + orders.ops + " points=" + points.ops
	orders.awaitReady(t)
	points.awaitReady(t)
	relays := startRelays(t, shop)
	const placed = 150 // more than 200 events of order
	err := demo.Load(t.Context(), demo.LoadConfig{OrderURL: "http://" + api, WebhookSecret: secret, Orders: placed, Journal: filepath.Join(t.TempDir(), "journal")})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "all is published and booked", func() bool {
		return pending(t, shop.orderDB)+pending(t, shop.pointsDB) == 0 &&
			count(t, shop.orderDB, `SELECT count(*) FROM message_outbox WHERE kind IN ('OrderPaid.v1', 'OrderRefunded.v1')`) == shop.effects(t)
	})
	requireDrained(t, jetStream(t, shop.natsURL))
	for _, relay := range relays {
		if err := relay.terminate(t, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	return shop
}

// startRelays starts one relay for each of the two outboxes.
func startRelays(t *testing.T, shop *reconciled) []*child {
	t.Helper()
	return []*child{
		startRelay(t, 1, "order", shop.orderDB.Config().ConnString(), shop.natsURL),
		startRelay(t, 2, "points", shop.pointsDB.Config().ConnString(), shop.natsURL),
	}
}

// repair mends what it finds, and dies at a point if there is one.
func (shop *reconciled) repair(point string) (out string, err error) {
	return shop.reconcile(point, "--repair", "--reason", "the stream was deleted")
}

// reconcile runs shopctl to its end, or to its crash.
func (shop *reconciled) reconcile(point string, flags ...string) (out string, err error) {
	cmd := exec.Command(filepath.Join(bin, "shopctl"), append([]string{"reconcile"}, flags...)...)
	cmd.Env = append(os.Environ(), markEnv+"="+mark, faults.Env+"="+point,
		"SHOPCTL_SERVICES="+shop.services, "SHOPCTL_TOKEN="+operatorToken, "NATS_URL="+shop.natsURL)
	both, err := cmd.CombinedOutput()
	return string(both), err
}

// effects counts the entries of the ledger.
func (shop *reconciled) effects(t *testing.T) int {
	t.Helper()
	return count(t, shop.pointsDB, `SELECT count(*) FROM points_entry`)
}

// events returns what both outboxes hold.
func (shop *reconciled) events(t *testing.T) []uuid.UUID {
	t.Helper()
	return append(ids(t, shop.orderDB, `SELECT event_id FROM message_outbox`), ids(t, shop.pointsDB, `SELECT event_id FROM message_outbox`)...)
}

// repaired returns what was queued again, by the word of the audit logs.
func (shop *reconciled) repaired(t *testing.T) []uuid.UUID {
	t.Helper()
	const sql = `SELECT jsonb_array_elements_text(after->'queued')::uuid FROM operator_action WHERE action = 'republish' AND actor = 'alice'`
	return append(ids(t, shop.orderDB, sql), ids(t, shop.pointsDB, sql)...)
}

func ids(t *testing.T, pool *pgxpool.Pool, sql string) []uuid.UUID {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// killed reports whether a command has ended by SIGKILL.
func killed(err error) bool {
	exit, ok := err.(*exec.ExitError)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

func exitCode(err error) int {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return 0
}
