package shopctl_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"orderpaid/platform/messaging/natsbroker"
)

const runbookFile = "../docs/05-operate.md"

// A scenario makes the fault of one section of the runbook and says what its
// commands speak of. heal does what the section tells a person to do outside
// of commands; good says that the fault is gone.
type scenario struct {
	fault func(t *testing.T, w *world) (vars map[string]string)
	heal  func(t *testing.T, w *world)
	good  func(t *testing.T, w *world) bool
}

// scenarios are by the heading of their section. Every section with commands
// has one.
var scenarios = map[string]scenario{
	"Where is what I paid for?": {
		fault: func(t *testing.T, w *world) map[string]string { return map[string]string{"ORDER": w.pay(t)} },
	},
	"The outbox is old": {
		fault: func(t *testing.T, w *world) map[string]string { w.relaysStop(); w.pay(t); return nil },
		heal:  func(t *testing.T, w *world) { w.startRelays(t) },
		good:  func(t *testing.T, w *world) bool { return w.pending(t) == 0 },
	},
	"The broker refuses events":        {fault: refused, good: func(t *testing.T, w *world) bool { return w.pending(t) == 0 }},
	"Dead letters":                     {fault: poisoned, good: noOpenLetters},
	"A dead letter is overdue":         {fault: overdue, good: noOpenLetters},
	"A version is missing":             {fault: gap, good: noGaps},
	"Too many events are parked":       {fault: parked, good: noOpenLetters},
	"A consumer has no active replica": {fault: inactive, heal: func(t *testing.T, w *world) { w.start(t, "points"); w.awaitActive(t) }},
	"A durable is gone":                {fault: durableGone, good: func(t *testing.T, w *world) bool { return w.awards(t) == w.paid(t) }},
	"A durable is ahead of the stream": {fault: durableAhead, good: func(t *testing.T, w *world) bool { return w.awards(t) == w.paid(t) }},
	"A consumer stands still": {
		fault: standsStill,
		heal:  func(t *testing.T, w *world) { w.exec(t, "points", `ALTER TABLE points_entry DROP CONSTRAINT closed`) },
		good:  func(t *testing.T, w *world) bool { return noOpenLetters(t, w) && w.awards(t) == w.paid(t) },
	},
	"The stream is lost":             {fault: lostStream},
	"Reconciliation finds something": {fault: orphan},
	"A mail may have arrived": {fault: doubtful, good: func(t *testing.T, w *world) bool {
		return w.count(t, "notify", `SELECT count(*) FROM delivery_task WHERE state = 'unknown'`) == 0
	}},
	"A payment that no order shows": {fault: unexplained, good: func(t *testing.T, w *world) bool {
		return w.count(t, "order", `SELECT count(*) FROM payment_exception WHERE state = 'open'`) == 0
	}},
	"A consumer must see events again": {fault: restored, good: func(t *testing.T, w *world) bool { return w.awards(t) == w.paid(t) }},
	"Partitions and retention":         {fault: func(*testing.T, *world) map[string]string { return nil }, good: prepared},
}

func TestTheRunbooksCommandsMendWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	sections := runbook(t)
	for heading := range scenarios {
		if len(sections[heading]) == 0 {
			t.Errorf("the runbook has no commands under %q", heading)
		}
	}
	binary := builtOnce(t)
	for heading, commands := range sections {
		s, known := scenarios[heading]
		if !known {
			t.Errorf("no scenario executes the commands under %q", heading)
			continue
		}
		t.Run(heading, func(t *testing.T) { // one after the other: each is a whole shop
			w := newWorld(t)
			w.follow(t, binary, s, commands)
		})
	}
}

// follow makes the fault, gives the section's commands in order, and waits
// until the fault is gone.
func (w *world) follow(t *testing.T, binary string, s scenario, commands []string) {
	t.Helper()
	vars := s.fault(t, w)
	dir := w.settings(t)
	for i, command := range commands {
		if i == 1 && s.heal != nil { // what a person does after having looked
			s.heal(t, w)
		}
		if last := i == len(commands)-1; last && strings.HasPrefix(command, "shopctl reconcile") {
			eventually(t, command, func() bool { _, err := w.shell(t, binary, dir, vars, command); return err == nil })
			continue
		}
		if out, err := w.shell(t, binary, dir, vars, command); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	if s.good != nil {
		eventually(t, "the fault is gone", func() bool { return s.good(t, w) })
	}
}

var (
	heading = regexp.MustCompile(`^## (.+)$`)
	fence   = regexp.MustCompile("^ *```")
)

// runbook returns the commands of each section.
func runbook(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile(runbookFile)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]string{}
	section, inside := "", false
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case fence.MatchString(line):
			inside = !inside && strings.HasSuffix(line, "```sh")
		case inside:
			sections[section] = append(sections[section], strings.TrimSpace(line))
		case heading.MatchString(line):
			section = heading.FindStringSubmatch(line)[1]
		}
	}
	return sections
}

var shopctlBinary struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shopctlBinary.dir != "" {
		os.RemoveAll(shopctlBinary.dir)
	}
	os.Exit(code)
}

// builtOnce returns a folder with the real program.
func builtOnce(t *testing.T) string {
	t.Helper()
	shopctlBinary.once.Do(func() {
		if shopctlBinary.dir, shopctlBinary.err = os.MkdirTemp("", "shopctl-"); shopctlBinary.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", shopctlBinary.dir+"/shopctl", "../cmd/shopctl").CombinedOutput()
		if err != nil {
			shopctlBinary.err = fmt.Errorf("build shopctl: %w: %s", err, out)
		}
	})
	if shopctlBinary.err != nil {
		t.Fatal(shopctlBinary.err)
	}
	return shopctlBinary.dir
}

// settings writes what the demo writes, and returns the folder to work in.
func (w *world) settings(t *testing.T) string {
	t.Helper()
	var services, databases []string
	for name, url := range w.opsURLs() {
		services = append(services, name+"="+url)
		databases = append(databases, name+"="+w.db[name].Config().ConnString())
	}
	text := fmt.Sprintf("SHOPCTL_SERVICES=%s\nSHOPCTL_DATABASES=%s\nSHOPCTL_ADMIN_URL=%s\nNATS_URL=%s\nSHOPCTL_TOKEN=%s\n",
		strings.Join(services, " "), strings.Join(databases, " "), w.db["order"].Config().ConnString(), w.nats.URL(), alice)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".orderpaid"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".orderpaid", "shopctl.env"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shell gives a command as a person would, in a shell of its own.
func (w *world) shell(t *testing.T, binary, dir string, vars map[string]string, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-ec", command)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SHOPCTL_") || strings.HasPrefix(v, "NATS_URL=") }),
		"PATH="+binary+":"+os.Getenv("PATH"))
	for name, value := range vars {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func noOpenLetters(t *testing.T, w *world) bool {
	return w.count(t, "points", `SELECT count(*) FROM message_failure WHERE state IN ('open', 'retrying', 'parked')`) == 0
}

func noGaps(t *testing.T, w *world) bool {
	return w.count(t, "search", `SELECT count(*) FROM message_failure WHERE state IN ('open', 'retrying', 'parked')`) == 0
}

func (w *world) paid(t *testing.T) int {
	return w.count(t, "order", `SELECT count(*) FROM orders WHERE state = 'PAID'`)
}

func (w *world) awards(t *testing.T) int {
	return w.count(t, "points", `SELECT count(*) FROM points_entry WHERE kind = 'award'`)
}

func (w *world) awaitActive(t *testing.T) {
	t.Helper()
	eventually(t, "points is active", func() bool {
		return w.count(t, "points", `SELECT count(*) FROM consumer_lease WHERE lease_until > clock_timestamp()`) == 1
	})
}

// refused makes an event that the broker has refused; the cause is mended.
func refused(t *testing.T, w *world) map[string]string {
	w.relaysStop()
	order := w.pay(t)
	w.exec(t, "order", `
WITH off AS (DELETE FROM message_outbox_pending RETURNING shard, id, event_id)
INSERT INTO message_outbox_held (shard, id, event_id, aggregate_type, aggregate_id, state, attempts, available_at, last_error)
SELECT off.shard, off.id, off.event_id, o.aggregate_type, o.aggregate_id, CASE o.aggregate_version WHEN 1 THEN 'failed' ELSE 'behind' END, 1, 'infinity', 'message refused'
  FROM off JOIN message_outbox o ON o.event_id = off.event_id`)
	w.startRelays(t)
	return map[string]string{"EVENT": w.text(t, "order", `SELECT event_id::text FROM message_outbox WHERE aggregate_id = $1 AND aggregate_version = 1`, order)}
}

func poisoned(t *testing.T, w *world) map[string]string {
	order := w.pay(t)
	w.awaitIdle(t)
	w.poison(t, order)
	w.poison(t, order)
	refs := w.letters(t, 2)
	return map[string]string{"LETTER": refs[0], "LETTER2": refs[1]}
}

// overdue makes a dead letter past its time, whose cause is mended.
func overdue(t *testing.T, w *world) map[string]string {
	w.exec(t, "points", `ALTER TABLE points_entry ADD CONSTRAINT closed CHECK (points < 0)`)
	w.pay(t)
	ref := w.letters(t, 1)[0]
	w.exec(t, "points", `UPDATE message_failure SET due_at = now() - interval '1 hour'`)
	w.exec(t, "points", `ALTER TABLE points_entry DROP CONSTRAINT closed`)
	return map[string]string{"LETTER": ref}
}

// gap makes an order whose first event search has lost, and whose second waits
// for it.
func gap(t *testing.T, w *world) map[string]string {
	order := w.pay(t)
	w.awaitIdle(t)
	w.stop("search")
	for _, sql := range []string{`DELETE FROM order_document`, `DELETE FROM message_inbox`, `DELETE FROM message_progress`} {
		w.exec(t, "search", sql)
	}
	var payload []byte
	if err := w.db["order"].QueryRow(t.Context(), `SELECT payload FROM message_outbox WHERE aggregate_id = $1 AND aggregate_version = 2`, order).Scan(&payload); err != nil {
		t.Fatal(err)
	}
	w.exec(t, "search", `
INSERT INTO message_failure (consumer, dedupe_key, blocking, event_id, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
	stream, stream_seq, subject, headers, payload, state, error_class, error_code, error_detail, attempts, budget_attempts, due_at)
SELECT 'search-indexer', event_id, true, event_id::uuid, 'OrderPaid', 1, 'order', $1, 2, 'EVENTS', 2, '', '{}', $2, 'open', 'parked', 'version_gap', '', 0, 0, now()
  FROM (SELECT $3::text AS event_id) e`, order, payload,
		w.text(t, "order", `SELECT event_id::text FROM message_outbox WHERE aggregate_id = $1 AND aggregate_version = 2`, order))
	w.start(t, "search")
	w.awaitReady(t, "search")
	return map[string]string{"ORDER": order}
}

// parked makes a dead letter with a refund waiting behind it; the cause is mended.
func parked(t *testing.T, w *world) map[string]string {
	w.exec(t, "points", `ALTER TABLE points_entry ADD CONSTRAINT closed CHECK (points < 0)`)
	for range 3 {
		w.pay(t)
	}
	w.letters(t, 3)
	w.exec(t, "points", `ALTER TABLE points_entry DROP CONSTRAINT closed`)
	return nil
}

// standsStill makes every award fail, until points no longer reads.
func standsStill(t *testing.T, w *world) map[string]string {
	w.exec(t, "points", `ALTER TABLE points_entry ADD CONSTRAINT closed CHECK (points < 0)`)
	for range 25 {
		w.pay(t)
	}
	w.letters(t, 20) // and five that wait on the stream
	return nil
}

// inactive stops a service; its ops API does not answer either.
func inactive(t *testing.T, w *world) map[string]string {
	w.pay(t)
	w.awaitIdle(t)
	w.stop("points")
	return nil
}

// durableGone deletes what points read through, and has a payment come after.
func durableGone(t *testing.T, w *world) map[string]string {
	w.pay(t)
	w.awaitIdle(t)
	if err := w.jetStream(t).DeleteConsumer(t.Context(), natsbroker.DefaultStream, "points-awarder"); err != nil {
		t.Fatal(err)
	}
	w.pay(t)
	return nil
}

// durableAhead moves what points read through to where the stream is not yet,
// and has a payment come after, which is skipped.
func durableAhead(t *testing.T, w *world) map[string]string {
	w.pay(t)
	w.awaitIdle(t)
	w.nats.MoveDurable(t, natsbroker.DefaultStream, "points-awarder", 1000)
	w.pay(t)
	return nil
}

func lostStream(t *testing.T, w *world) map[string]string {
	w.load(t, 10)
	if err := w.jetStream(t).DeleteStream(t.Context(), natsbroker.DefaultStream); err != nil {
		t.Fatal(err)
	}
	return nil
}

// orphan makes an event that nobody would publish.
func orphan(t *testing.T, w *world) map[string]string {
	w.relaysStop()
	w.pay(t)
	w.exec(t, "order", `DELETE FROM message_outbox_pending`)
	w.exec(t, "order", `UPDATE order_history SET at = at - interval '5 minutes'`) // older than what may be on its way
	w.startRelays(t)
	return nil
}

// doubtful makes a mail that was sent and never acknowledged.
func doubtful(t *testing.T, w *world) map[string]string {
	w.pay(t)
	w.awaitIdle(t)
	w.exec(t, "notify", `UPDATE delivery_task SET state = 'unknown', code = 'outcome_unknown'`)
	return map[string]string{"MAIL": w.text(t, "notify", `SELECT notification_id FROM delivery_task`)}
}

// unexplained makes a second payment of an order, which nothing in the shop takes.
func unexplained(t *testing.T, w *world) map[string]string {
	order := w.pay(t)
	post(t, w.provider, fmt.Sprintf(`{"order_id":%q,"amount":1,"currency":"JPY","exponent":0}`, order), nil)
	open := func() string {
		return w.text(t, "order", `SELECT coalesce(max('order/' || exception_id), '') FROM payment_exception WHERE state = 'open'`)
	}
	eventually(t, "the second payment waits for a person", func() bool { return open() != "" })
	return map[string]string{"EXCEPTION": open()}
}

// restored makes a database that has forgotten three payments.
func restored(t *testing.T, w *world) map[string]string {
	w.load(t, 20)
	w.missed(t, w.orders(t, 3)...)
	return nil
}

func prepared(t *testing.T, w *world) bool {
	return w.count(t, "order", `SELECT count(*) FROM pg_inherits WHERE inhparent = 'message_outbox'::regclass`) >= 12
}
