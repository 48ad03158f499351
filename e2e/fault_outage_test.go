package e2e

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"orderpaid/demo"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/pgserver"
	"orderpaid/platform/pgtest"
	"orderpaid/services/points"
)

// Faults that are not crashes of our own processes: what they depend on dies,
// freezes, forgets, or is cut off. docs/03-failure-matrix.md has a row for
// each test in these files.

// mei is who repairs things here.
var mei = messaging.Actor{Name: "mei", Reason: "the broker has lost it"}

// freeze is how long what is frozen stays so: longer than the leases of the
// processes that need it.
const freeze = 4 * time.Second

// underway starts a relay and points, and returns when a part of n payments is
// booked.
func (l *line) underway(t *testing.T, n int) {
	t.Helper()
	l.points(t, 1)
	l.relay(t, 1)
	l.pay(t, n)
	eventually(t, time.Minute, "a part is booked", func() bool { return l.booked(t) > 0 })
}

// lineAndDatabase returns a line that has n payments under way, and the server
// of its databases, for the test to ill-treat.
func lineAndDatabase(t *testing.T, n int) (*line, *pgserver.Server) {
	t.Helper()
	srv := pgtest.Durable(t)
	l := newLine(t, srv)
	l.underway(t, n)
	return l, srv
}

// lineAndBroker is the same with the broker, in a process of its own.
func lineAndBroker(t *testing.T, n int) (*line, *natsServer) {
	t.Helper()
	broker := startNATS(t)
	l := newLineAt(t, pgtest.Durable(t), broker.url(), natsbroker.Topology{})
	l.underway(t, n)
	return l, broker
}

func (l *line) booked(t *testing.T) int {
	t.Helper()
	return count(t, l.pointsDB, `SELECT count(*) FROM points_entry`)
}

// settled returns when everything paid so far is booked and off the queue.
func (l *line) settled(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "all is booked and off the queue", func() bool { return l.booked(t) == l.orders && pending(t, l.orderDB) == 0 })
}

// A relay that was stopped by the kernel, a debugger or a paused machine wakes
// up and believes that its leases are still its own.
func TestARelayFrozenPastItsLeaseReversesNothing(t *testing.T) {
	t.Parallel()
	srv := pgtest.Durable(t)
	l := newLine(t, srv)
	l.pay(t, 2000)
	sleeper := l.relay(t, 1)
	eventually(t, time.Minute, "it publishes", func() bool { return pending(t, l.orderDB) < 2000 })
	if err := sleeper.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	frozen := time.Now()
	l.points(t, 1)
	l.relay(t, 2)
	eventually(t, time.Minute, "another relay has all shards", func() bool {
		return count(t, l.orderDB, `SELECT count(*) FROM relay_lease WHERE owner LIKE '%-' || $1 || '-%' AND lease_until > now()`, strconv.Itoa(sleeper.cmd.Process.Pid)) == 0
	})
	if err := sleeper.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.pay(t, 500)
	l.requireOnce(t, frozen)
}

// C37: an outage is no failure of the events that it meets, so none is given up.
func TestPostgreSQLKilledUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	l, srv := lineAndDatabase(t, 1000)
	srv.Kill()
	died := time.Now()
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.orderDB.Reset() // the test's own connections died as well
	l.pointsDB.Reset()
	l.pay(t, 100)
	l.requireOnce(t, died)
}

// C26: a server that takes bytes and answers nothing must not hang a loop for
// ever.
func TestPostgreSQLFrozenUnderLoadStopsNothingForEver(t *testing.T) {
	t.Parallel()
	l, srv := lineAndDatabase(t, 1000)
	signalPostgres(t, srv, syscall.SIGSTOP)
	<-time.After(freeze)
	signalPostgres(t, srv, syscall.SIGCONT)
	thawed := time.Now()
	l.pay(t, 100)
	l.requireOnce(t, thawed)
}

// C81, with the whole shop.
func TestNATSKilledUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	l, broker := lineAndBroker(t, 1000)
	for range 3 {
		broker.kill(t)
		l.pay(t, 100)
		broker.start(t)
	}
	l.requireOnce(t, time.Now())
}

// C26, C51: the same for the broker's socket; and its outage counts against no
// event.
func TestNATSFrozenUnderLoadStopsNothingForEver(t *testing.T) {
	t.Parallel()
	l, broker := lineAndBroker(t, 1000)
	broker.signal(t, syscall.SIGSTOP)
	l.pay(t, 100)
	<-time.After(freeze)
	if got := count(t, l.orderDB, `SELECT count(*) FROM message_outbox_pending WHERE attempts > 0`); got != 0 {
		t.Errorf("%d events have an attempt counted against them, want none", got)
	}
	broker.signal(t, syscall.SIGCONT)
	l.requireOnce(t, time.Now())
}

// The broker comes back with nothing: no stream, no durables.
func TestAWipedStreamIsFilledAgainFromTheOutbox(t *testing.T) {
	t.Parallel()
	l, broker := lineAndBroker(t, 300)
	l.settled(t)
	broker.kill(t)
	l.pay(t, 50)
	if err := os.RemoveAll(broker.store()); err != nil {
		t.Fatal(err)
	}
	broker.start(t)
	ensureTopology(t, broker.url(), points.Subscriptions()...)
	wiped := time.Now()
	l.republishMissing(t, 300)
	l.requireOnce(t, wiped)
}

// A snapshot of the broker's disk is restored: acknowledged events are gone,
// and so is what consumers had acknowledged.
func TestABrokerRolledBackIsFilledAgainFromTheOutbox(t *testing.T) {
	t.Parallel()
	l, broker := lineAndBroker(t, 200)
	l.settled(t)
	broker.kill(t)
	snapshot := broker.dir + "/snapshot"
	if err := os.CopyFS(snapshot, os.DirFS(broker.store())); err != nil {
		t.Fatal(err)
	}
	broker.start(t)
	l.pay(t, 150)
	l.settled(t)
	broker.kill(t)
	if err := os.RemoveAll(broker.store()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(snapshot, broker.store()); err != nil {
		t.Fatal(err)
	}
	broker.start(t)
	back := time.Now()
	l.republishMissing(t, 150)
	l.requireOnce(t, back)
}

// The broker's disk takes no more. A limit on the size of its files stands for
// a full one, because a file system of its own would need a privileged user:
// either way a write fails in the middle of the store.
func TestABrokerThatCannotWriteMakesTheOutboxWaitAndLosesNothing(t *testing.T) {
	t.Parallel()
	l, broker := lineAndBroker(t, 200)
	l.settled(t)
	broker.kill(t)
	broker.fileLimit = 1024 // half a megabyte
	broker.start(t)
	l.pay(t, 1500)
	awaitStuck(t, l)
	broker.kill(t)
	if pending(t, l.orderDB) == 0 {
		t.Fatal("the broker took everything")
	}
	if got := count(t, l.orderDB, `SELECT count(*) FROM message_outbox_held WHERE state = 'failed'`); got != 0 {
		t.Errorf("%d events are given up, want none", got)
	}
	broker.fileLimit = 0
	broker.start(t)
	l.requireOnce(t, time.Now())
}

// awaitStuck returns when the queue has not become shorter for a while.
func awaitStuck(t *testing.T, l *line) {
	t.Helper()
	waiting, since := pending(t, l.orderDB), time.Now()
	eventually(t, time.Minute, "the queue stands still", func() bool {
		if now := pending(t, l.orderDB); now != waiting {
			waiting, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
}

// republishMissing compares the stream with the evidence, and queues again
// what the broker has acknowledged and no longer holds.
func (l *line) republishMissing(t *testing.T, want int) {
	t.Helper()
	audit, err := demo.AuditStream(t.Context(), l.natsURL)
	if err != nil {
		t.Fatal(err)
	}
	var missing []uuid.UUID
	for _, id := range l.staged {
		if !audit.Has(id) {
			missing = append(missing, id)
		}
	}
	queued, err := messaging.NewHistory(l.orderDB).Republish(t.Context(), missing, mei)
	if err != nil || queued < want { // more if a relay has published one between the look and this
		t.Fatalf("%d events were queued again, %v, want at least %d", queued, err, want)
	}
}

// Each network between two parts is cut in turn, in the middle of what it
// carries.
func TestEveryLinkIsCutInTurnAndNothingIsLost(t *testing.T) {
	t.Parallel()
	srv, broker := pgtest.Durable(t), startNATS(t)
	l := newLineAt(t, srv, broker.url(), natsbroker.Topology{})
	var outbox, ledger *link
	outbox, l.orderDSN = through(t, l.orderDSN)
	ledger, l.pointsDSN = through(t, l.pointsDSN)
	stream := newLink(t, "tcp", broker.addr)
	l.childNATS = "nats://" + stream.listener.Addr().String()
	l.underway(t, 500)
	for round := range 4 {
		for name, between := range map[string]*link{"outbox": outbox, "ledger": ledger, "stream": stream} {
			booked := l.booked(t)
			l.pay(t, 50)
			eventually(t, time.Minute, "there is a connection to cut", func() bool { return between.cut() > 0 })
			eventually(t, time.Minute, "after the cut of "+name+" it goes on", func() bool { return l.booked(t) > booked })
		}
		t.Logf("round %d", round+1)
	}
	l.requireOnce(t, time.Now())
}
