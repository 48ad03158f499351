package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

// newPayments returns a database with an empty table of payments, whose key is
// checked at COMMIT.
func newPayments(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t, "messaging")
	_, err := pool.Exec(t.Context(), `CREATE TABLE payment (id text CONSTRAINT payment_id_key UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestCommitOutcomeIsUnknownWhenTheConnectionDies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		onCommit string
		rows     int
	}{
		{cutBeforeForward, 0},
		{cutAfterAnswer, 1},
		{swallowAnswer, 1},
	} {
		t.Run(test.onCommit, func(t *testing.T) {
			t.Parallel()
			direct := newPayments(t)
			proxied := openThroughProxy(t, direct, test.onCommit)
			hinted := false
			err := postgres.InTx(t.Context(), proxied, func(tx pgx.Tx) error {
				afterCommit(t, tx, func() { hinted = true })
				return insertPayment(tx, t)
			})
			if !errors.Is(err, postgres.ErrUnknownOutcome) {
				t.Errorf("got %v, want ErrUnknownOutcome", err)
			}
			if got, want := postgres.Classify(err), postgres.Unknown; got != want {
				t.Errorf("got class %s, want %s", got, want)
			}
			if got, want := payments(t, direct), test.rows; got != want {
				t.Errorf("got %d rows, want %d", got, want)
			}
			if !hinted {
				t.Error("the hint was not given, although the commit may be done")
			}
		})
	}
}

func TestCommitOutcomeIsUnknownWhenTheServerEndsTheSessionDuringCommit(t *testing.T) {
	t.Parallel()
	pool := newPayments(t)
	onCommit(t, pool, `PERFORM pg_terminate_backend(pg_backend_pid());`)
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error { return insertPayment(tx, t) })
	if !errors.Is(err, postgres.ErrUnknownOutcome) || postgres.Code(err) != "57P01" {
		t.Errorf("got %v, want ErrUnknownOutcome with 57P01", err)
	}
	if got, want := payments(t, pool), 0; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
}

func TestConstraintThatRefusesTheCommitIsNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	pool := newPayments(t)
	hinted := false
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		afterCommit(t, tx, func() { hinted = true })
		if err := insertPayment(tx, t); err != nil {
			return err
		}
		return insertPayment(tx, t)
	})
	if errors.Is(err, postgres.ErrUnknownOutcome) || !postgres.IsUniqueViolation(err, "payment_id_key") {
		t.Errorf("got %v, want a violation of payment_id_key and nothing unknown", err)
	}
	if got, want := postgres.Classify(err), postgres.Permanent; got != want {
		t.Errorf("got class %s, want %s", got, want)
	}
	if hinted {
		t.Error("a hint was given for a transaction that is rolled back")
	}
	if got, want := payments(t, pool), 0; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
}

func TestErrorRaisedDuringCommitIsNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	pool := newPayments(t)
	onCommit(t, pool, `RAISE EXCEPTION 'no' USING ERRCODE = '40001';`)
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error { return insertPayment(tx, t) })
	if got, want := postgres.Classify(err), postgres.Transient; got != want {
		t.Errorf("got class %s of %v, want %s", got, err, want)
	}
}

// C62: a statement failed and nobody looked: that is no commit.
func TestSwallowedStatementErrorIsARollback(t *testing.T) {
	t.Parallel()
	pool := newPayments(t)
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		if err := insertPayment(tx, t); err != nil {
			return err
		}
		_, _ = tx.Exec(t.Context(), `SELECT 1 / 0`)
		return nil
	})
	if !errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, postgres.ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrTxCommitRollback and nothing unknown", err)
	}
	if got, want := payments(t, pool), 0; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
}

func TestErrorAndPanicRollBackAndFreeTheConnection(t *testing.T) {
	t.Parallel()
	errNo := errors.New("no")
	for name, end := range map[string]func() error{
		"error": func() error { return errNo },
		"panic": func() error { panic(errNo) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPayments(t)
			err := catch(func() error {
				return postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
					if err := insertPayment(tx, t); err != nil {
						return err
					}
					return end()
				})
			})
			if !errors.Is(err, errNo) {
				t.Errorf("got %v, want %v", err, errNo)
			}
			if got, want := payments(t, pool), 0; got != want {
				t.Errorf("got %d rows, want %d", got, want)
			}
			if got, want := pool.Stat().AcquiredConns(), int32(0); got != want {
				t.Errorf("got %d connections in use, want %d", got, want)
			}
		})
	}
}

func TestContextThatEndsBeforeTheCommitDoesNotStopIt(t *testing.T) {
	t.Parallel()
	pool := newPayments(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		defer cancel()
		return insertPayment(tx, t)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := payments(t, pool), 1; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
}

func TestContextThatEndsDuringAStatementRollsBack(t *testing.T) {
	t.Parallel()
	pool := newPayments(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		if err := insertPayment(tx, t); err != nil {
			return err
		}
		cancel()
		_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
		return err
	})
	if got, want := postgres.Classify(err), postgres.Transient; got != want {
		t.Errorf("got class %s of %v, want %s", got, err, want)
	}
	if got, want := payments(t, pool), 0; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
}

func TestFunctionCannotEndItsTransaction(t *testing.T) {
	t.Parallel()
	pool := newPayments(t)
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("Commit inside InTx returned nil")
		}
		if err := tx.Rollback(t.Context()); err == nil {
			t.Error("Rollback inside InTx returned nil")
		}
		return insertPayment(tx, t)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := payments(t, pool), 1; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
}

func TestSavepointCanBeRolledBackAndItsHintIsStillGiven(t *testing.T) {
	t.Parallel()
	pool := newPayments(t)
	var hints []string
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		afterCommit(t, tx, func() { hints = append(hints, "outer") })
		errInner := pgx.BeginFunc(t.Context(), tx, func(inner pgx.Tx) error {
			afterCommit(t, inner, func() { hints = append(hints, "inner") })
			return errors.Join(insertPayment(inner, t), errors.New("no"))
		})
		if errInner == nil {
			t.Error("the savepoint's error is lost")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := payments(t, pool), 0; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
	if len(hints) != 2 || hints[0] != "outer" || hints[1] != "inner" {
		t.Errorf("got hints %v, want outer, inner", hints)
	}
}

// C19: who finds no connection waits for one.
func TestFiftyTransactionsShareTwoConnections(t *testing.T) {
	t.Parallel()
	direct := newPayments(t)
	pool, err := postgres.Open(t.Context(), direct.Config().ConnString(), postgres.Config{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var done atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO payment (id) VALUES (gen_random_uuid())`)
				return err
			})
			if err != nil {
				t.Error(err)
				return
			}
			done.Add(1)
		})
	}
	wg.Wait()
	if got, want := payments(t, direct), 50; got != want || done.Load() != 50 {
		t.Errorf("got %d rows and %d commits, want %d of each", got, done.Load(), want)
	}
}

// C19: two transactions that each wait for a second connection of a pool of two
// would wait for ever.
func TestTransactionInsideAnotherEndsWithARetryableError(t *testing.T) {
	t.Parallel()
	direct := newPayments(t)
	pool, err := postgres.Open(t.Context(), direct.Config().ConnString(), postgres.Config{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var bothHold, wg sync.WaitGroup
	bothHold.Add(2)
	for range 2 {
		wg.Go(func() {
			err := postgres.InTx(t.Context(), pool, func(pgx.Tx) error {
				bothHold.Done()
				bothHold.Wait()
				return postgres.InTx(t.Context(), pool, func(pgx.Tx) error { return nil })
			})
			// The first of them to give up frees the connection that the other waits for.
			if err != nil && postgres.Classify(err) != postgres.Transient {
				t.Errorf("got %v, want a transient error", err)
			}
		})
	}
	wg.Wait()
	if got, want := pool.Stat().AcquiredConns(), int32(0); got != want {
		t.Errorf("got %d connections in use, want %d", got, want)
	}
}

// onCommit has the database run a line of PL/pgSQL when a payment commits.
func onCommit(t *testing.T, pool *pgxpool.Pool, body string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		CREATE FUNCTION on_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+body+` RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER on_commit AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION on_commit()`)
	if err != nil {
		t.Fatal(err)
	}
}

func afterCommit(t *testing.T, tx pgx.Tx, hook func()) {
	t.Helper()
	h, ok := tx.(interface{ AfterCommit(func()) })
	if !ok {
		t.Fatalf("%T has no AfterCommit", tx)
	}
	h.AfterCommit(hook)
}

// catch turns a panic into an error.
func catch(fn func() error) (err error) {
	defer func() {
		if p, ok := recover().(error); ok {
			err = p
		}
	}()
	return fn()
}
