package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/pgserver"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func TestEverySessionHasTimeLimits(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t, "messaging").Config().ConnString()
	for name, test := range map[string]struct {
		dsn  string
		cfg  postgres.Config
		want string
	}{
		"defaults": {dsn, postgres.Config{ApplicationName: "order"}, "10s 3s 15s order UTC"},
		"configured": {dsn, postgres.Config{
			ApplicationName: "order", StatementTimeout: 1500 * time.Millisecond, LockTimeout: time.Second, IdleInTxTimeout: time.Minute,
		}, "1500ms 1s 1min order UTC"},
		"address wins over defaults":         {dsn + "&statement_timeout=7000&application_name=x", postgres.Config{}, "7s 3s 15s x UTC"},
		"configured wins over address":       {dsn + "&lock_timeout=7000", postgres.Config{ApplicationName: "order", LockTimeout: time.Second}, "10s 1s 15s order UTC"},
		"an empty parameter is no parameter": {dsn + "&timezone=", postgres.Config{ApplicationName: "order"}, "10s 3s 15s order UTC"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, err := postgres.Open(t.Context(), test.dsn, test.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			var got string
			err = pool.QueryRow(t.Context(), `SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('lock_timeout'),
				current_setting('idle_in_transaction_session_timeout'), current_setting('application_name'), current_setting('timezone'))`).Scan(&got)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got, want := pool.Config().MaxConns, int32(8); got != want {
				t.Errorf("got %d connections, want %d", got, want)
			}
		})
	}
}

func TestSlowStatementEndsWithATransientError(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t, "messaging").Config().ConnString()
	pool, err := postgres.Open(t.Context(), dsn, postgres.Config{StatementTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	_, err = pool.Exec(t.Context(), `SELECT pg_sleep(60)`)
	if postgres.Code(err) != "57014" || postgres.Classify(err) != postgres.Transient {
		t.Errorf("got %v, want a transient 57014", err)
	}
}

// C64: the server of a pool's sessions has become a standby and still answers.
// The first write finds that out, and the second goes to the primary.
func TestASessionThatCanOnlyReadIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t, "messaging").Config().ConnString()
	pool, err := postgres.Open(t.Context(), dsn, postgres.Config{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	write := func() error {
		return postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `CREATE TABLE written ()`)
			return err
		})
	}
	if _, err := pool.Exec(t.Context(), `SET default_transaction_read_only = on`); err != nil { // as on a standby
		t.Fatal(err)
	}
	if err := write(); postgres.Code(err) != "25006" || postgres.Classify(err) != postgres.Transient {
		t.Errorf("got %v, want a transient 25006", err)
	}
	if err := write(); err != nil {
		t.Errorf("the second time: got %v, want another session", err)
	}
}

// C135: a password is rotated in its file, under a pool that has read it before.
func TestAPasswordThatIsRenewedInItsFileIsUsedForTheNextSession(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Unsafe: true, SharedBuffersMB: 16, MaxConnections: 20})
	admin := pgtest.On(t, srv, "messaging")
	rules := filepath.Join(srv.Dir, "data", "pg_hba.conf")
	known, err := os.ReadFile(rules)
	if err == nil {
		err = os.WriteFile(rules, append([]byte("local all clerk scram-sha-256\n"), known...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "pgpass")
	rotate := func(password string) {
		if _, err := admin.Exec(t.Context(), `ALTER ROLE clerk PASSWORD '`+password+`'`); err != nil {
			t.Fatal(err)
		}
	}
	write := func(password string) {
		if err := os.WriteFile(secret, []byte("*:*:*:clerk:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Exec(t.Context(), `CREATE ROLE clerk LOGIN; SELECT pg_reload_conf()`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	rotate("first")
	write("first")
	cc := admin.Config().ConnConfig
	pool, err := postgres.Open(t.Context(), fmt.Sprintf("host=%s port=%d user=clerk dbname=%s passfile=%s sslmode=disable", cc.Host, cc.Port, cc.Database, secret), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ping := func() error {
		pool.Reset() // as if the sessions had reached their lifetime
		return pool.Ping(t.Context())
	}
	rotate("second")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C { // the server reads its rules in its own time
		if err = ping(); postgres.Code(err) == "28P01" || time.Now().After(deadline) {
			break
		}
	}
	if got, want := postgres.Code(err), "28P01"; got != want {
		t.Fatalf("the old password: got code %q of %v, want %q", got, err, want)
	}
	write("second")
	if err := ping(); err != nil {
		t.Errorf("the new password: %v", err)
	}
}

func TestTimesArriveInUTC(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	var one time.Time
	var many []time.Time
	err := pool.QueryRow(t.Context(), `SELECT timestamptz '2026-03-01 00:30+09', ARRAY[timestamptz '2026-03-01 00:30+09']`).Scan(&one, &many)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range append(many, one) {
		if want := "2026-02-28T15:30:00Z"; got.Format(time.RFC3339) != want {
			t.Errorf("got %s, want %s", got.Format(time.RFC3339), want)
		}
	}
}

func TestWrongAddressEndsTheStartAndKeepsThePasswordSecret(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://shop:hunter2@127.0.0.1:1/order?sslmode=disable",
		"postgres://shop:hunter2@127.0.0.1:notaport/order",
	} {
		_, err := postgres.Open(t.Context(), dsn, postgres.Config{})
		if err == nil {
			t.Fatalf("%s: got no error", dsn)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is in the error: %v", err)
		}
	}
}
