package messaging_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func TestAnEventIsStagedWithItsTransactionOrNotAtAll(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	outbox := newOutbox(t, nil)
	refused := errors.New("refused by the rules")
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		if err := outbox.Add(t.Context(), tx, messaging.New("a", 1, changed{N: 1})); err != nil {
			return err
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Fatalf("got %v, want the business error", err)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_outbox`); got != 0 {
		t.Errorf("got %d facts after a rollback, want 0", got)
	}
	stage(t, pool, messaging.New("a", 1, changed{N: 1}))
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_pending JOIN message_outbox USING (event_id, shard, id)`); got != 1 {
		t.Errorf("got %d pending facts after a commit, want 1", got)
	}
}

func TestTheEnvelopeCarriesWhatTheContractSays(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	cause := messaging.Meta{CorrelationID: "order-7", Tenant: "north"}
	expires := time.Now().Add(time.Hour)
	draft := messaging.New("a", 3, changed{N: 9007199254740993}).CausedBy(cause).ExpiresAt(expires)
	stage(t, pool, draft)
	ev := messagingtest.RequireStaged[changed](t, pool)
	if ev.EventID != draft.ID() || ev.EventID.Version() != 7 {
		t.Errorf("got event id %s, want the draft's UUIDv7 %s", ev.EventID, draft.ID())
	}
	if ev.EventType != "ThingChanged" || ev.SchemaVersion != 1 || ev.AggregateType != "thing" || ev.AggregateID != "a" || ev.AggregateVersion != 3 {
		t.Errorf("got %+v", ev.Meta)
	}
	if ev.Producer != "test" || ev.Tenant != "north" || ev.CorrelationID != "order-7" || ev.Data.N != 9007199254740993 {
		t.Errorf("got %+v, %+v", ev.Meta, ev.Data)
	}
	if !ev.ExpiresAt.Equal(expires.UTC().Truncate(time.Microsecond)) {
		t.Errorf("got expiry %v, want %v", ev.ExpiresAt, expires)
	}
}

// C11: what could never be published is refused where the business transaction
// can still say no.
func TestAnOversizeEventIsRefusedAtAdd(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	outbox := newOutbox(t, nil)
	for _, draft := range []messaging.Draft{
		messaging.New("a", 1, changed{Note: strings.Repeat("x", messaging.MaxEventBytes)}),
		messaging.New("a", 1, changed{Note: "a\x00b"}),
		messaging.New("a", 1, changed{Note: "a\xffb"}),
		messaging.New("", 1, changed{}),
		messaging.New("a", 0, changed{}),
		messaging.New(strings.Repeat("a", 201), 1, changed{}),
	} {
		err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, draft) })
		if !errors.Is(err, messaging.ErrEventRefused) {
			t.Errorf("got %v, want ErrEventRefused", err)
		}
	}
	if got := count(t, pool, `SELECT count(*) FROM message_outbox`); got != 0 {
		t.Errorf("got %d facts, want 0", got)
	}
	stage(t, pool, messaging.New("b", 1, changed{Note: `a literal \ufffd, one more \\ufffd, and a genuine �`}))
	largest := changed{Note: strings.Repeat("x", messaging.MaxEventBytes-600)}
	stage(t, pool, messaging.New("a", 1, largest))
}

func TestTheWakeUpIsCalledAfterTheCommitAndNotAfterARollback(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	wakes, committed := 0, false
	want := messaging.ShardSet(0).With(messaging.ShardOf("a"))
	outbox := newOutbox(t, func(shards messaging.ShardSet) {
		wakes++
		if shards != want {
			t.Errorf("got shards %x, want %x", shards, want)
		}
		if committed = count(t, pool, `SELECT count(*) FROM message_outbox`) == 1; !committed {
			t.Error("woken before the commit")
		}
	})
	add := func(outcome error) {
		postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			if err := outbox.Add(t.Context(), tx, messaging.New("a", 1, changed{})); err != nil {
				t.Error(err)
			}
			return outcome
		})
	}
	add(errors.New("no"))
	add(nil)
	if wakes != 1 {
		t.Errorf("got %d wake-ups, want 1", wakes)
	}
}

func TestBytesOnTheQueueAreTheBytesThatWereStaged(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stage(t, pool, messaging.New("a", 1, changed{Note: `quo"te </script> \u0000 ünï 日本`}))
	var payload []byte
	if err := pool.QueryRow(t.Context(), `SELECT payload FROM message_outbox`).Scan(&payload); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(payload) {
		t.Fatalf("got %s", payload)
	}
	recorder := newRecorder()
	startRelay(t, pool, recorder, messaging.RelayConfig{})
	awaitCount(t, pool, 1, `SELECT count(*) FROM message_outbox_publication`)
	if got := recorder.messages()[0].Data; string(got) != string(payload) {
		t.Errorf("got %s, want %s", got, payload)
	}
}

// An id that is older or newer than every partition has no place in the
// outbox. The error says so, and what to do, before anything is lost.
func TestAnIDOutsideThePreparedPartitionsIsRefusedAtAdd(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	if _, err := pool.Exec(t.Context(), `DO $$ DECLARE p text; BEGIN
		FOR p IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'message_outbox'::regclass LOOP
			EXECUTE 'DROP TABLE ' || p; END LOOP; END $$`); err != nil {
		t.Fatal(err)
	}
	outbox := newOutbox(t, nil)
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		return outbox.Add(t.Context(), tx, messaging.New("a", 1, changed{}))
	})
	if !errors.Is(err, messaging.ErrNoPartition) {
		t.Errorf("got %v, want ErrNoPartition", err)
	}
}

func TestAddWithoutDraftsDoesNothing(t *testing.T) {
	t.Parallel()
	if err := newOutbox(t, nil).Add(context.Background(), nil); err != nil {
		t.Error(err)
	}
}
