package shopctl_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/operator"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/shopctl"
)

// reconcile runs the command and returns its report and whether it found
// anything.
func (w *world) reconcile(t *testing.T, args ...string) (report operator.Report, clean bool) {
	t.Helper()
	out, err := w.as(t, alice, "reconcile --json --since 1h --in-flight 1ms --nats-url "+w.nats.URL(), args...)
	if err != nil && !errors.Is(err, shopctl.ErrFindings) {
		t.Fatalf("reconcile: %v\n%s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	return report, err == nil
}

// checks returns what was found, each kind once, with its service.
func checks(r operator.Report) (found []string) {
	for _, f := range r.Findings {
		what := f.Check + " in " + f.Service
		if f.Check == operator.CheckInvariant {
			what = strings.SplitN(f.Says, ":", 2)[0] + " in " + f.Service
		}
		if !slices.Contains(found, what) {
			found = append(found, what)
		}
	}
	slices.Sort(found)
	return found
}

func requireChecks(t *testing.T, r operator.Report, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := checks(r); !slices.Equal(got, want) {
		t.Errorf("got findings\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// jetStream returns a connection as the owner of the topology.
func (w *world) jetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(w.nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestAHealthyShopHasNoFindings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 60)
	report, clean := w.reconcile(t)
	if !clean || report.Facts < 120 || report.OnStream < 120 || report.Handled < 120 || report.Effects < 60 || report.Checks < 20 {
		t.Errorf("clean %v, got %+v", clean, report)
	}
	text, err := w.as(t, viewer, "reconcile --since 1h --in-flight 1ms --sample 50 --nats-url "+w.nats.URL())
	if err != nil {
		t.Errorf("a sample: %v", err)
	}
	requireIn(t, text, "50 % of the orders", "findings                         0")
	w.stop("search")
	text, err = w.as(t, viewer, "reconcile --since 1h --in-flight 1ms --nats-url "+w.nats.URL())
	if !errors.Is(err, shopctl.ErrFindings) {
		t.Errorf("got %v with a service that does not answer, want ErrFindings", err)
	}
	requireIn(t, text, "! search: does not answer", "findings                         0")
}

// Each discrepancy is made behind the services' backs, in a database or on the
// stream, and is found under its name.
func TestReconciliationFindsEachDiscrepancyAndMendsWhatCanBeMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 30)
	orders := w.orders(t, 5)

	// A paid order whose event is nowhere.
	w.exec(t, "order", `DELETE FROM message_outbox_publication WHERE event_id IN (SELECT event_id FROM message_outbox WHERE aggregate_id = $1 AND kind = 'OrderPaid.v1')`, orders[0])
	w.exec(t, "order", `DELETE FROM message_outbox WHERE aggregate_id = $1 AND kind = 'OrderPaid.v1'`, orders[0])
	// One whose event nobody will publish.
	w.exec(t, "order", `DELETE FROM message_outbox_publication WHERE event_id IN (SELECT event_id FROM message_outbox WHERE aggregate_id = $1 AND kind = 'OrderPaid.v1')`, orders[1])
	// One that the broker has lost.
	w.forgotten(t)
	// One that two consumers never got.
	for service, effect := range map[string]string{"points": `DELETE FROM points_entry WHERE order_id = $1`, "notify": `DELETE FROM delivery_task WHERE order_id = $1`} {
		w.exec(t, service, `DELETE FROM message_inbox WHERE aggregate_id = $1`, orders[3])
		w.exec(t, service, effect, orders[3])
	}
	w.exec(t, "points", `UPDATE points_balance b SET balance = (SELECT coalesce(sum(points), 0) FROM points_entry e WHERE e.user_id = b.user_id)`)
	// One that was applied, and whose effect is gone.
	w.exec(t, "search", `DELETE FROM order_document WHERE order_id = $1`, orders[4])
	// Points that no payment has earned.
	w.exec(t, "points", `INSERT INTO points_entry (entry_id, order_id, user_id, kind, points, event_id)
		SELECT replace(gen_random_uuid()::text, '-', ''), 'ord_none', 'u_none', 'award', 5, gen_random_uuid()`)
	w.exec(t, "points", `UPDATE points_entry SET entry_id = 'pte_' || lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '70008000000000000001' WHERE order_id = 'ord_none'`)
	// A mail that nobody sends.
	w.exec(t, "notify", `UPDATE delivery_task SET state = 'unknown' WHERE order_id = $1`, orders[4])

	report, clean := w.reconcile(t)
	if clean {
		t.Error("exit code 0 with findings")
	}
	requireChecks(t, report,
		"fact without event in order", "effect without cause in points", // orders[0], for everybody, and the award for nothing
		"effect without cause in notify", "effect without cause in search",
		"event that nobody publishes in order",
		"published, not on the stream in order",
		"on the stream, not consumed in points", "on the stream, not consumed in notify", "on the stream, not consumed in search",
		"consumed, no effect in search",
		"ledger_equals_balance in points",
		"fact without event in points",
		"fact without event in notify",
		"mails_have_an_outcome in notify",
	)
	w.repairs(t, orders)
}

// repairs mends what was found and looks again.
func (w *world) repairs(t *testing.T, orders []string) {
	t.Helper()
	dry, _ := w.reconcile(t, "--repair", "--dry-run")
	for _, f := range dry.Findings {
		if f.Repair != "" && !strings.HasPrefix(f.Repaired, "would be") {
			t.Errorf("dry run: got %q for %+v", f.Repaired, f)
		}
	}
	if n := w.count(t, "order", `SELECT count(*) FROM operator_action`); n != 0 {
		t.Errorf("a dry run left %d actions", n)
	}
	if _, err := w.as(t, alice, "reconcile --repair"); err == nil {
		t.Error("a repair without a reason was accepted")
	}
	if _, err := w.as(t, viewer, "reconcile --repair --since 1h --in-flight 1ms --nats-url "+w.nats.URL(), "--reason=no right to"); err == nil {
		t.Error("a viewer could mend")
	}
	w.reconcile(t, "--repair", "--allow-external", "--reason=the test says so")
	eventually(t, "the repairs are done", func() bool {
		return w.pending(t) == 0 && w.count(t, "points", `SELECT count(*) FROM points_entry WHERE order_id = $1`, orders[3]) == 1 &&
			w.count(t, "notify", `SELECT count(*) FROM delivery_task WHERE order_id = $1 AND state = 'sent'`, orders[3]) == 1 &&
			w.count(t, "points", `SELECT count(*) FROM message_replay WHERE state <> 'done'`) == 0
	})
	report, _ := w.reconcile(t)
	for _, f := range report.Findings {
		if f.Repair != "" {
			t.Errorf("still found after the repair: %+v", f)
		}
	}
	if n := w.count(t, "order", `SELECT count(*) FROM operator_action WHERE actor = 'alice' AND action = 'republish' AND reason = 'reconcile: the test says so'`); n == 0 {
		t.Error("the republishing is not recorded")
	}
}

// orders returns n paid orders without refunds.
func (w *world) orders(t *testing.T, n int) (ids []string) {
	t.Helper()
	rows, err := w.db["order"].Query(t.Context(), `SELECT order_id FROM orders WHERE state = 'PAID' AND refunded_amount = 0 ORDER BY order_id LIMIT $1`, n)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if rows.Err() != nil || len(ids) < n {
		t.Fatalf("got %d paid orders, want %d: %v", len(ids), n, rows.Err())
	}
	return ids
}

// forgotten makes a payment of which the broker has acknowledged the events and
// then lost them, as one does that was killed between its answer and its disk.
func (w *world) forgotten(t *testing.T) {
	t.Helper()
	w.relaysStop()
	w.pay(t)
	w.exec(t, "order", `
WITH acknowledged AS (DELETE FROM message_outbox_pending RETURNING event_id)
INSERT INTO message_outbox_publication (event_id, stream, stream_seq, duplicate, relay)
SELECT event_id, 'EVENTS', 1000000 + row_number() OVER (), false, 'a relay' FROM acknowledged`)
	w.startRelays(t)
}

// The broker loses everything. The outboxes are the truth: what they say was
// published is published again, under the same ids, and has no second effect.
func TestAfterTheStreamIsLostEverythingIsNamedAndPublishedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 40)
	before := w.effects(t)
	ids := w.text(t, "order", `SELECT string_agg(event_id::text, ' ' ORDER BY event_id) FROM message_outbox_publication`)
	if err := w.jetStream(t).DeleteStream(t.Context(), natsbroker.DefaultStream); err != nil {
		t.Fatal(err)
	}
	w.ensureTopology(t) // as the runbook says: shopctl topology apply
	report, _ := w.reconcile(t)
	published := w.count(t, "order", `SELECT count(*) FROM message_outbox_publication`) + w.count(t, "points", `SELECT count(*) FROM message_outbox_publication`) +
		w.count(t, "notify", `SELECT count(*) FROM message_outbox_publication`)
	lost := 0
	for _, f := range report.Findings {
		if f.Check == operator.CheckLost {
			lost++
		}
	}
	if lost != published {
		t.Errorf("got %d lost events named, want all %d", lost, published)
	}
	w.reconcile(t, "--repair", "--per-second=10000", "--reason=the stream is lost")
	eventually(t, "all is published again", func() bool { return w.pending(t) == 0 })
	eventually(t, "the check is green", func() bool { _, clean := w.reconcile(t); return clean })
	if got := w.text(t, "order", `SELECT string_agg(event_id::text, ' ' ORDER BY event_id) FROM message_outbox_publication`); got != ids {
		t.Error("the events have other ids than before")
	}
	if after := w.effects(t); after != before {
		t.Errorf("got effects %v, want %v as before", after, before)
	}
}

// effects counts what must not happen twice.
func (w *world) effects(t *testing.T) (n [4]int) {
	t.Helper()
	for i, q := range []struct{ service, sql string }{
		{"points", `SELECT count(*) FROM points_entry`}, {"points", `SELECT sum(balance) FROM points_balance`},
		{"notify", `SELECT count(*) FROM delivery_task`}, {"search", `SELECT sum(version) FROM order_document`},
	} {
		n[i] = w.count(t, q.service, q.sql)
	}
	return n
}

// A broker that was rolled back to an older copy of its files gives old
// sequences to new events: what counts is which event is there.
func TestAStreamThatWasRolledBackIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 20)
	js := w.jetStream(t)
	if err := js.DeleteStream(t.Context(), natsbroker.DefaultStream); err != nil {
		t.Fatal(err)
	}
	w.ensureTopology(t)
	eventually(t, "new events get old sequences", func() bool { w.pay(t); return w.lastSequence(t, js) > 3 })
	eventually(t, "they are done", func() bool { return w.pending(t) == 0 })
	report, clean := w.reconcile(t)
	lost := 0
	for _, f := range report.Findings {
		if f.Check == operator.CheckLost {
			lost++
		}
	}
	if clean || lost == 0 || lost >= report.OnStream {
		t.Errorf("clean %v, %d of %d lost; want those of before the loss and not those of after it", clean, lost, report.OnStream)
	}
}

func (w *world) lastSequence(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	stream, err := js.Stream(context.WithoutCancel(t.Context()), natsbroker.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.LastSeq
}

// A run that compares nothing finds nothing, and looks like a healthy shop.
func TestReconcileRefusesSettingsUnderWhichItWouldLookAtNothing(t *testing.T) {
	t.Parallel()
	good := shopctl.Reconcile{Since: time.Hour, InFlight: time.Minute, Sample: 100, PerSecond: 200}
	for want, change := range map[string]func(*shopctl.Reconcile){
		"--since -1h":     func(c *shopctl.Reconcile) { c.Since = -time.Hour },
		"--in-flight -1s": func(c *shopctl.Reconcile) { c.InFlight = -time.Second },
		"--sample -5":     func(c *shopctl.Reconcile) { c.Sample = -5 },
		"--sample 0":      func(c *shopctl.Reconcile) { c.Sample = 0 },
		"--sample 101":    func(c *shopctl.Reconcile) { c.Sample = 101 },
		"--every -5m":     func(c *shopctl.Reconcile) { c.Every = -5 * time.Minute },
		"--per-second 0":  func(c *shopctl.Reconcile) { c.PerSecond = 0 },
		"--limit -3":      func(c *shopctl.Reconcile) { c.Limit = -3 },
		"it is not known": func(*shopctl.Reconcile) {}, // whom to ask: it got that far
	} {
		c := good
		change(&c)
		if err := c.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
