package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

// newEffects returns a database in which handlers leave a trace that counts
// double effects as two.
func newEffects(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t, "messaging")
	_, err := pool.Exec(t.Context(), `CREATE TABLE effect (seq bigint GENERATED ALWAYS AS IDENTITY, consumer text, aggregate text, n int CHECK (n >= 0), note text)`)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func write(ctx context.Context, tx pgx.Tx, consumer string, ev messaging.Event[changed]) error {
	_, err := tx.Exec(ctx, `INSERT INTO effect (consumer, aggregate, n, note) VALUES ($1, $2, $3, $4)`, consumer, ev.AggregateID, ev.Data.N, ev.Data.Note)
	return err
}

// newWriter returns a consumer that writes one effect per event.
func newWriter(t *testing.T, pool *pgxpool.Pool, name string) *messaging.Consumer {
	t.Helper()
	c := messaging.NewConsumer(name, pool, nil, messaging.ConsumerConfig{Lease: 2 * time.Second})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		return write(ctx, tx, name, ev)
	})
	return c
}

const sqlCountEffects = `SELECT count(*) FROM effect`

func TestAnEventDeliveredManyTimesHasOneEffect(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newWriter(t, pool, "writer")
	event := messagingtest.Envelope(t, "a", 1, changed{N: 1})
	answers := messagingtest.Deliver(t, c, event, event, event) // copies in one group
	answers = append(answers, messagingtest.Deliver(t, c, event)...)
	if !messagingtest.AllAcked(answers) {
		t.Errorf("got %v, want every copy acknowledged", answers)
	}
	if got := count(t, pool, sqlCountEffects); got != 1 {
		t.Errorf("got %d effects, want 1", got)
	}
}

// C49: what one consumer has done is not done for another.
func TestEachConsumerHasItsOwnEffect(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	event := messagingtest.Envelope(t, "a", 1, changed{N: 1})
	for _, name := range []string{"first", "second", "third"} {
		messagingtest.Deliver(t, newWriter(t, pool, name), event)
	}
	if got := count(t, pool, `SELECT count(DISTINCT consumer) FROM effect`); got != 3 {
		t.Errorf("got effects of %d consumers, want 3", got)
	}
}

// C01, C04: one dead letter for each message that can never be used, its bytes
// kept, and the good ones of the same group are applied.
func TestUnusableMessagesBecomeDeadLettersAndTheRestIsApplied(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newWriter(t, pool, "writer")
	good := messagingtest.Envelope(t, "a", 1, changed{N: 1})
	unknown := bytes.Replace(messagingtest.Envelope(t, "b", 1, changed{}), []byte("ThingChanged"), []byte("ThingMelted"), 1)
	future := bytes.Replace(messagingtest.Envelope(t, "b", 1, changed{}), []byte(`"schema_version":1`), []byte(`"schema_version":9`), 1)
	hugeVersion := bytes.Replace(messagingtest.Envelope(t, "b", 1, changed{}), []byte(`"schema_version":1`), []byte(`"schema_version":99999999999`), 1)
	wrongType := bytes.Replace(messagingtest.Envelope(t, "b", 1, changed{N: 5}), []byte(`"n":5`), []byte(`"n":"five"`), 1)
	withNUL := bytes.Replace(messagingtest.Envelope(t, "b", 1, changed{Note: "a_b"}), []byte("a_b"), []byte(`a\u0000b`), 1)
	refusedByCheck := messagingtest.Envelope(t, "c", 1, changed{N: -1})
	twoIDs := bytes.Replace(messagingtest.Envelope(t, "b", 1, changed{}), []byte("{"), []byte(`{"EventId":"0197c9a2-6f10-7c3a-9b51-3f0d6a1c2e4b",`), 1)
	twoVersions := bytes.Replace(messagingtest.Envelope(t, "b", 1, changed{}), []byte("{"), []byte(`{"aggregate_version":7,`), 1)
	unusable := [][]byte{{}, []byte("<html>"), []byte("null"), []byte("[1]"), []byte("\xff\xfe\x00"), twoIDs, twoVersions, unknown, future, hugeVersion, wrongType, withNUL, refusedByCheck}
	for range 2 { // the second time, each is the same dead letter
		answers := messagingtest.Deliver(t, c, append(unusable, good)...)
		if !messagingtest.AllAcked(answers) {
			t.Errorf("got %v, want everything done with", answers)
		}
	}
	if got := count(t, pool, sqlCountEffects); got != 1 {
		t.Errorf("got %d effects, want that of the good event alone", got)
	}
	if got := count(t, pool, `SELECT count(DISTINCT error_code) FROM message_failure`); got != 10 {
		t.Errorf("got %d different codes, want 10", got)
	}
	rows, _ := pool.Query(t.Context(), `SELECT payload FROM message_failure`)
	kept, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range unusable {
		found := false
		for _, got := range kept {
			found = found || bytes.Equal(got, want)
		}
		if !found {
			t.Errorf("no dead letter holds the bytes %.60q", want)
		}
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE event_id IS NOT NULL AND attempts = 2`); got != 5 {
		t.Errorf("got %d identified dead letters with two attempts, want 5", got)
	}
}

// C15b: an event that is a dead letter and comes again is one dead letter; one
// that has had its effect never becomes one.
func TestADeadLetterOfAnAppliedEventIsNotRecorded(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newWriter(t, pool, "writer")
	event := messagingtest.Envelope(t, "a", 1, changed{N: 1})
	messagingtest.Deliver(t, c, event)
	mangled := bytes.Replace(event, []byte(`"n":1`), []byte(`"n":"x"`), 1)
	if answers := messagingtest.Deliver(t, c, mangled); !messagingtest.AllAcked(answers) {
		t.Errorf("got %v, want it acknowledged as a duplicate", answers)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure`); got != 0 {
		t.Errorf("got %d dead letters, want 0", got)
	}
}

func TestAPoisonEventCostsOnlyItselfAndFewTransactions(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	var transactions atomic.Int64
	c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{})
	messaging.HandleBatch(c, func(ctx context.Context, tx pgx.Tx, evs []messaging.Event[changed]) error {
		transactions.Add(1)
		for _, ev := range evs {
			if ev.Data.N == 333 {
				panic("poison")
			}
			if err := write(ctx, tx, "writer", ev); err != nil {
				return err
			}
		}
		return nil
	})
	var events [][]byte
	for i := range 500 {
		events = append(events, messagingtest.Envelope(t, fmt.Sprint("thing-", i), 1, changed{N: i}))
	}
	if answers := messagingtest.Deliver(t, c, events...); !messagingtest.AllAcked(answers) {
		t.Errorf("got %v, want each applied or recorded", answers)
	}
	recorded := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'retrying' AND aggregate_id = 'thing-333' AND error_code = 'panic' AND error_stack LIKE '%consumer_test.go%'`)
	if recorded != 1 {
		t.Errorf("got %d records of the poison event, want 1", recorded)
	}
	if got := count(t, pool, sqlCountEffects); got != 499 {
		t.Errorf("got %d effects, want 499", got)
	}
	if got := transactions.Load(); got > 25 {
		t.Errorf("got %d transactions, want at most 25", got)
	}
}

// errPanic stands for a handler that panics.
var errPanic = errors.New("panic")

// What a handler returns, line by line of the table in doc.go.
func TestWhatAHandlerReturnsDecidesWhatHappens(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		err      error
		recorded string // as SQL over message_failure
	}{
		{"nil", nil, "false"},
		{"panic", errPanic, "state = 'retrying' AND error_class = 'transient' AND error_code = 'panic' AND error_stack LIKE '%consumer_test.go%' AND attempts = 1"},
		{"commit unknown", fmt.Errorf("commit: %w", postgres.ErrUnknownOutcome), "false"},
		{"permanent", messaging.Permanent(messaging.Coded("bad_amount", errors.New("amount below zero"))),
			"state = 'open' AND error_class = 'permanent' AND error_code = 'bad_amount' AND due_at > now()"},
		{"wrapped permanent", fmt.Errorf("book: %w", messaging.Permanent(errors.New("no"))), "state = 'open' AND error_code = 'handler_error'"},
		{"retry after", messaging.RetryAfter(errors.New("too early"), 7*time.Second),
			"state = 'retrying' AND next_attempt_at - first_failed_at BETWEEN interval '6.9 s' AND interval '9 s'"},
		{"another error", errors.New("flaky"),
			"state = 'retrying' AND error_class = 'transient' AND attempts = 1 AND next_attempt_at - first_failed_at < interval '2.5 s'"},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := newEffects(t)
			unknown := errors.Is(test.err, postgres.ErrUnknownOutcome) // once: the repetition has an answer
			applies := test.err == nil || unknown
			calls := 0
			c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{})
			messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
				calls++
				err := write(ctx, tx, "writer", ev)
				switch {
				case test.err == errPanic:
					panic(ev.Data)
				case unknown && calls > 1:
					return err
				}
				return errors.Join(err, test.err)
			})
			answer := messagingtest.Deliver(t, c, messagingtest.Envelope(t, "a", 1, changed{N: 1}))[0]
			if !answer.Acked {
				t.Errorf("got %+v, want it acknowledged: applied, or recorded", answer)
			}
			if got, want := count(t, pool, sqlCountEffects), count(t, pool, `SELECT count(*) FROM message_inbox`); got != want || (got == 1) != applies {
				t.Errorf("got %d effects and %d inbox rows", got, want)
			}
			all, got := count(t, pool, `SELECT count(*) FROM message_failure`), count(t, pool, `SELECT count(*) FROM message_failure WHERE `+test.recorded)
			if (all == 1) == applies || got != all {
				t.Errorf("got %d records, %d of them as they should be", all, got)
			}
		})
	}
}

func TestEventsOfManyKindsKeepTheOrderOfTheirAggregate(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	calls := 0
	c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{})
	messaging.HandleBatch(c, func(ctx context.Context, tx pgx.Tx, evs []messaging.Event[changed]) error {
		calls++
		for _, ev := range evs {
			if err := write(ctx, tx, "changed", ev); err != nil {
				return err
			}
		}
		return nil
	})
	messaging.HandleBatch(c, func(ctx context.Context, tx pgx.Tx, evs []messaging.Event[closed]) error {
		calls++
		for _, ev := range evs {
			if _, err := tx.Exec(ctx, `INSERT INTO effect (consumer, aggregate, n) VALUES ('closed', $1, $2)`, ev.AggregateID, ev.Data.N); err != nil {
				return err
			}
		}
		return nil
	})
	var events [][]byte
	for i := range 50 {
		id := fmt.Sprint("thing-", i)
		events = append(events, messagingtest.Envelope(t, id, 1, changed{N: 1}), messagingtest.Envelope(t, id, 2, closed{N: 2}))
	}
	events = append(events, messagingtest.Envelope(t, "thing-0", 3, changed{N: 3}))
	messagingtest.Deliver(t, c, events...)
	wrong := count(t, pool, `SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY aggregate ORDER BY seq) AS before FROM effect) e WHERE n < before`)
	if wrong != 0 {
		t.Errorf("got %d events applied before their predecessor, want 0", wrong)
	}
	if calls != 3 {
		t.Errorf("got %d handler calls for 101 events, want 3", calls)
	}
}

func TestAnExpiredEventEndsAsExpiredAndHasNoEffect(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	past := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	event := bytes.Replace(messagingtest.Envelope(t, "a", 1, changed{N: 1}), []byte(`"producer"`), []byte(`"expires_at":"`+past+`","producer"`), 1)
	if answers := messagingtest.Deliver(t, newWriter(t, pool, "writer"), event); !messagingtest.AllAcked(answers) {
		t.Errorf("got %v, want it acknowledged", answers)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_inbox WHERE result = 'expired'`); got != 1 {
		t.Errorf("got %d inbox rows that say expired, want 1", got)
	}
	if got := count(t, pool, sqlCountEffects); got != 0 {
		t.Errorf("got %d effects, want 0", got)
	}
}

func TestTheInboxKeepsWhatTheHandlerSaid(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{})
	messaging.Handle(c, func(_ context.Context, _ pgx.Tx, ev messaging.Event[changed]) error {
		if ev.Data.N == 2 {
			ev.Result("already_booked")
		}
		return nil
	})
	messagingtest.Deliver(t, c, messagingtest.Envelope(t, "a", 1, changed{N: 1}), messagingtest.Envelope(t, "a", 2, changed{N: 2}))
	if got := count(t, pool, `SELECT count(*) FROM message_inbox WHERE result = 'already_booked'`); got != 1 {
		t.Errorf("got %d rows, want 1", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_inbox WHERE result = 'applied'`); got != 1 {
		t.Errorf("got %d rows, want 1", got)
	}
}

// C14: duplicates must not use up what is finite.
func TestAThousandDuplicatesUseUpNothing(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := newWriter(t, pool, "writer")
	event := messagingtest.Envelope(t, "a", 1, changed{N: 1})
	for range 20 {
		messagingtest.Deliver(t, c, event)
	}
	var last int
	if err := pool.QueryRow(t.Context(), `SELECT max(last_value) FROM pg_sequences WHERE schemaname = 'public' AND sequencename NOT LIKE 'goose%'`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	if last != 1 {
		t.Errorf("got a sequence at %d, want 1", last)
	}
	types := count(t, pool, `SELECT count(*) FROM pg_sequences WHERE data_type <> 'bigint'::regtype AND sequencename NOT LIKE 'goose%'`)
	if types != 0 {
		t.Errorf("got %d sequences that are not bigint, want 0", types)
	}
}

// C60: what a database or a handler quotes of an event stays out of what is kept.
func TestPersonalDataInErrorsIsNotKept(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if ev.Data.N == 1 {
			_, err := tx.Exec(ctx, `SELECT ('mei.lin@example.com ' || $1)::int`, "x")
			return err
		}
		return messaging.Permanent(errors.New("no account for mei.lin@example.com"))
	})
	messagingtest.Deliver(t, c, messagingtest.Envelope(t, "a", 1, changed{N: 1}), messagingtest.Envelope(t, "b", 1, changed{N: 2}))
	rows, _ := pool.Query(t.Context(), `SELECT error_detail FROM message_failure`)
	details, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(details) != 2 {
		t.Fatalf("got %d details, %v, want 2", len(details), err)
	}
	if all := strings.Join(details, "\n"); strings.Contains(all, "mei.lin") {
		t.Errorf("got %s", all)
	}
}
