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
	"orderpaid/platform/pgtest"
	"orderpaid/shopctl"
)

// The stream is gone, and shopctl dies between two of the commands that fill
// it again. It is run again, and each event comes back once, with one row in
// the audit log that says who asked for it.
func TestARepairKilledBetweenTwoCommandsIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	srv := pgtest.Durable(t)
	shop := newCounter(t, onServer(t, srv, "order"), onServer(t, srv, "points"))
	shop.load(t, demo.LoadConfig{Orders: 150}) // more than 200 events, which is more than one command names
	shop.settled(t)
	for _, relay := range shop.relays {
		if err := relay.terminate(t, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
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
	shop.startRelays(t)
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

// repair mends what it finds, and dies at a point if there is one.
func (shop *counter) repair(point string) (out string, err error) {
	return shop.reconcile(point, "--repair", "--reason", "the stream was deleted")
}

// reconcile runs shopctl to its end, or to its crash.
func (shop *counter) reconcile(point string, flags ...string) (out string, err error) {
	cmd := exec.Command(filepath.Join(bin, "shopctl"), append([]string{"reconcile"}, flags...)...)
	cmd.Env = append(os.Environ(), markEnv+"="+mark, faults.Env+"="+point,
		"SHOPCTL_SERVICES="+shop.services, "SHOPCTL_TOKEN="+operatorToken, "NATS_URL="+shop.natsURL)
	both, err := cmd.CombinedOutput()
	return string(both), err
}

// repaired returns what was queued again, by the word of the audit logs.
func (shop *counter) repaired(t *testing.T) []uuid.UUID {
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
