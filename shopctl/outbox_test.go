package shopctl_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
	"orderpaid/platform/process"
	"orderpaid/shopctl"
)

type happened struct{}

func (happened) Kind() messaging.Kind {
	return messaging.Kind{Context: "order", Type: "OrderHappened", Version: 1, Aggregate: "order"}
}

// stagedAndHeld returns a database with two pending events and, of another
// aggregate, one that was given up and one behind it.
func stagedAndHeld(t *testing.T) (*pgxpool.Pool, shopctl.Databases) {
	t.Helper()
	pool := pgtest.New(t, "messaging")
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order"})
	if err != nil {
		t.Fatal(err)
	}
	err = postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		return outbox.Add(t.Context(), tx, messaging.New("fine", 1, happened{}), messaging.New("fine", 2, happened{}),
			messaging.New("bad", 1, happened{}), messaging.New("bad", 2, happened{}))
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(), `
WITH off AS (
	DELETE FROM message_outbox_pending p USING message_outbox o
	 WHERE o.event_id = p.event_id AND o.aggregate_id = 'bad'
	RETURNING p.shard, p.id, p.event_id, o.aggregate_type, o.aggregate_id, o.aggregate_version
)
INSERT INTO message_outbox_held (shard, id, event_id, aggregate_type, aggregate_id, state, attempts, available_at, last_error)
SELECT shard, id, event_id, aggregate_type, aggregate_id, CASE aggregate_version WHEN 1 THEN 'failed' ELSE 'behind' END, 3, 'infinity',
       E'message refused:\n too large' FROM off`)
	if err != nil {
		t.Fatal(err)
	}
	return pool, shopctl.Databases{Databases: map[string]process.Secret{"order": process.Secret(pool.Config().ConnString())}}
}

func TestTheSummaryCountsEachState(t *testing.T) {
	t.Parallel()
	_, databases := stagedAndHeld(t)
	var out bytes.Buffer
	if err := (shopctl.OutboxSummary{Databases: databases}).Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want a head and one database:\n%s", len(lines), out.String())
	}
	fields := strings.Fields(lines[1])
	// database pending oldest s backoff behind failed relays published
	if got, want := strings.Join(append(fields[:2:2], fields[4:]...), " "), "order 2 0 1 1 0 0"; got != want {
		t.Errorf("got %q, want %q in\n%s", got, want, out.String())
	}
}

func TestTheListShowsOneStateAndWhy(t *testing.T) {
	t.Parallel()
	_, databases := stagedAndHeld(t)
	for state, want := range map[string]int{"any": 4, "pending": 2, "failed": 1, "behind": 1, "backoff": 0} {
		var out bytes.Buffer
		if err := (shopctl.OutboxList{Databases: databases, State: state, Limit: 10}).Run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), "\n") - 1; got != want {
			t.Errorf("state %s: %d events, want %d:\n%s", state, got, want, out.String())
		}
		if state == "backoff" && out.String() != "none\n" {
			t.Errorf("state %s: got %q, want none", state, out.String())
		}
		if state == "failed" && !strings.Contains(out.String(), "never  message refused: too large") {
			t.Errorf("the list does not say when and why:\n%s", out.String())
		}
	}
}

func TestADatabaseThatIsDownDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	_, databases := stagedAndHeld(t)
	databases.Databases["absent"] = "postgres://nobody@127.0.0.1:1/absent"
	var out bytes.Buffer
	err := (shopctl.OutboxSummary{Databases: databases}).Run(t.Context(), &out)
	if err == nil || !strings.Contains(err.Error(), "database absent") {
		t.Errorf("got %v, want an error that names the database", err)
	}
	if !strings.Contains(out.String(), "order ") {
		t.Errorf("the other database is not shown:\n%s", out.String())
	}
}

func TestWithoutAnyDatabaseThatAnswersTheSummarySaysWhatToStart(t *testing.T) {
	t.Parallel()
	away := shopctl.Databases{Databases: map[string]process.Secret{"order": "postgres://nobody@127.0.0.1:1/o", "points": "host=/nowhere dbname=p"}}
	err := (shopctl.OutboxSummary{Databases: away}).Run(t.Context(), io.Discard)
	if err == nil || !strings.HasSuffix(err.Error(), "start scripts/demo in this folder, or name a shop that runs in SHOPCTL_DATABASES (order=postgres://shop_relay@db/shop_order …)") {
		t.Errorf("got %v, want what to start at its end", err)
	}
}

func TestWhatWasPublishedIsNotReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	order := w.pay(t)
	w.awaitIdle(t)
	event := w.text(t, "order", `SELECT event_id::text FROM message_outbox WHERE kind = 'OrderPaid.v1' AND aggregate_id = $1`, order)
	out, err := w.as(t, alice, "outbox release", event, "--reason=a wrong id")
	if err == nil || !strings.Contains(err.Error(), "none of the events is failed") {
		t.Errorf("got %v, want an error that says why nothing was released", err)
	}
	requireIn(t, out, "order: 0 of 1 released", event+" is published")
}

func TestAListOfNothingIsRefusedBecauseItLooksLikeAnEmptyQueue(t *testing.T) {
	t.Parallel()
	_, databases := stagedAndHeld(t)
	for _, limit := range []int{0, -1} {
		err := (shopctl.OutboxList{Databases: databases, State: "any", Limit: limit}).Run(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "--limit") {
			t.Errorf("limit %d: got %v, want the flag named", limit, err)
		}
	}
}

func TestWithoutADatabaseACommandSaysHowToNameOne(t *testing.T) {
	t.Parallel()
	var none shopctl.Databases
	for name, run := range map[string]func(context.Context, io.Writer) error{
		"outbox summary":    shopctl.OutboxSummary{Databases: none}.Run,
		"outbox list":       shopctl.OutboxList{Databases: none, Limit: 50}.Run,
		"migrate":           shopctl.Migrate{Databases: none}.Run,
		"retention prepare": shopctl.RetentionPrepare{Databases: none}.Run,
	} {
		err := run(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "scripts/demo") || !strings.Contains(err.Error(), "SHOPCTL_DATABASES") {
			t.Errorf("%s: got %v, want what to start or to set", name, err)
		}
	}
}
