package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orderpaid/platform/pgserver"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func TestErrorsAreClassifiedBySQLSTATE(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]postgres.Class{
		"08006": postgres.Transient, // connection_failure
		"22001": postgres.Permanent, // string_data_right_truncation
		"22P02": postgres.Permanent, // invalid_text_representation
		"23505": postgres.Permanent, // unique_violation
		"23514": postgres.Permanent, // check_violation
		"25006": postgres.Transient, // read_only_sql_transaction
		"25P03": postgres.Transient, // idle_in_transaction_session_timeout
		"26000": postgres.Transient, // invalid_sql_statement_name
		"40001": postgres.Transient, // serialization_failure
		"40003": postgres.Unknown,   // statement_completion_unknown
		"40P01": postgres.Transient, // deadlock_detected
		"42501": postgres.Permanent, // insufficient_privilege
		"42P01": postgres.Permanent, // undefined_table
		"42P05": postgres.Transient, // duplicate_prepared_statement
		"53100": postgres.Transient, // disk_full
		"53300": postgres.Transient, // too_many_connections
		"55P03": postgres.Transient, // lock_not_available
		"57014": postgres.Transient, // query_canceled
		"57P01": postgres.Transient, // admin_shutdown
		"57P02": postgres.Transient, // crash_shutdown
		"57P03": postgres.Transient, // cannot_connect_now
		"57P04": postgres.Permanent, // database_dropped
		"P0001": postgres.Permanent, // raise_exception
		"XX000": postgres.Permanent, // internal_error
	} {
		err := fmt.Errorf("pay order ord_1: %w", &pgconn.PgError{Code: code})
		if got := postgres.Classify(err); got != want {
			t.Errorf("%s: got %s, want %s", code, got, want)
		}
		if got := postgres.Code(err); got != code {
			t.Errorf("got code %s, want %s", got, code)
		}
	}
}

// C98: a pooler, or a person, took a session's prepared statements away. One
// statement fails, with an error that may be repeated, and then there is another
// session.
func TestStatementThatASessionHasForgottenMayBeRepeated(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Open(t.Context(), pgtest.New(t, "messaging").Config().ConnString(), postgres.Config{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ask := func(sql string) error {
		return postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), sql, 1)
			return err
		})
	}
	const one, another = `SELECT $1::int`, `SELECT $1::bigint`
	for _, sql := range []string{one, another} {
		if err := ask(sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `DEALLOCATE ALL`, pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	if err := ask(one); postgres.Code(err) != "26000" || postgres.Classify(err) != postgres.Transient {
		t.Errorf("got %v, want a transient 26000", err)
	}
	for _, sql := range []string{one, another} {
		if err := ask(sql); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// C67: a column gets another type while a service runs. The session that had
// prepared a statement on it fails once, with an error that may be repeated.
func TestStatementThatAMigrationHasOvertakenMayBeRepeated(t *testing.T) {
	t.Parallel()
	owner := pgtest.New(t, "messaging")
	exec := func(sql string) {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE product (stock integer)`)
	exec(`INSERT INTO product VALUES (7)`)
	pool, err := postgres.Open(t.Context(), owner.Config().ConnString(), postgres.Config{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	stock := func() (n int64, err error) {
		err = postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), `SELECT stock FROM product`).Scan(&n)
		})
		return n, err
	}
	if n, err := stock(); n != 7 || err != nil {
		t.Fatalf("got %d, %v, want 7", n, err)
	}
	exec(`ALTER TABLE product ALTER stock TYPE bigint`)
	if _, err := stock(); postgres.Code(err) != "0A000" || postgres.Classify(err) != postgres.Transient {
		t.Errorf("after the migration: got %v, want a transient 0A000", err)
	}
	if n, err := stock(); n != 7 || err != nil {
		t.Errorf("the second time: got %d, %v, want 7", n, err)
	}
	_, err = pool.Exec(t.Context(), `SELECT count(*) FROM product FOR UPDATE`)
	if postgres.Code(err) != "0A000" || postgres.Classify(err) != postgres.Permanent {
		t.Errorf("what is not supported: got %v, want a permanent 0A000", err)
	}
}

func TestErrorsWithoutSQLSTATEAreClassified(t *testing.T) {
	t.Parallel()
	_, refused := pgx.Connect(t.Context(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable")
	for _, test := range []struct {
		err  error
		want postgres.Class
	}{
		{nil, ""},
		{refused, postgres.Transient},
		{context.DeadlineExceeded, postgres.Transient},
		{context.Canceled, postgres.Transient},
		{pgconn.ErrConnClosed, postgres.Transient},
		{pgx.ErrTxCommitRollback, postgres.Transient},
		{pgx.ErrNoRows, postgres.Permanent},
		{errors.New("quantity is negative"), postgres.Permanent},
		{fmt.Errorf("%w: %w", postgres.ErrUnknownOutcome, &pgconn.PgError{Code: "23505"}), postgres.Unknown},
	} {
		if got := postgres.Classify(test.err); got != test.want {
			t.Errorf("%v: got %q, want %q", test.err, got, test.want)
		}
	}
}

// A wrong password is not the event's fault: it must not become a dead letter.
func TestRefusedLoginIsTransient(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t, "messaging").Config().ConnConfig
	_, err := pgx.Connect(t.Context(), fmt.Sprintf("host=%s port=%d user=%s dbname=does_not_exist sslmode=disable password='%s'",
		dsn.Host, dsn.Port, dsn.User, dsn.Password))
	if got, want := postgres.Code(err), "3D000"; got != want {
		t.Fatalf("got code %q of %v, want %q", got, err, want)
	}
	if got, want := postgres.Classify(err), postgres.Transient; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// C20: an error is known by its SQLSTATE, in whatever language it is told.
func TestErrorsOfAServerThatSpeaksGermanAreRecognised(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Unsafe: true, SharedBuffersMB: 16, MaxConnections: 20, Language: "de"})
	pool := pgtest.On(t, srv, "messaging")
	if _, err := pool.Exec(t.Context(), `CREATE TABLE payment (id text CONSTRAINT payment_id_key UNIQUE)`); err != nil {
		t.Fatal(err)
	}
	insert := func() error {
		return postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error { return insertPayment(tx, t) })
	}
	if err := insert(); err != nil {
		t.Fatal(err)
	}
	err := insert()
	t.Logf("the server says: %v", err)
	if !postgres.IsUniqueViolation(err, "payment_id_key") || postgres.Classify(err) != postgres.Permanent {
		t.Errorf("got %v, want a violation of payment_id_key", err)
	}

	// The same at COMMIT, where the severity counts as well: it is translated, too.
	if _, err := pool.Exec(t.Context(), `ALTER TABLE payment DROP CONSTRAINT payment_id_key, ADD CONSTRAINT payment_id_key UNIQUE (id) DEFERRABLE INITIALLY DEFERRED`); err != nil {
		t.Fatal(err)
	}
	if err := insert(); !postgres.IsUniqueViolation(err, "payment_id_key") || errors.Is(err, postgres.ErrUnknownOutcome) {
		t.Errorf("got %v, want a violation of payment_id_key and nothing unknown", err)
	}
}
