package process_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/pgserver"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
)

// holdMigration lets a migration of the server wait in the middle, in front of
// its first index, until the session that asks for it is gone.
func holdMigration(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, sql := range []string{
		`CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); END $$`,
		`CREATE EVENT TRIGGER hold ON ddl_command_start WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION hold()`,
		`SELECT pg_advisory_lock(4711)`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

func awaitHeld(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	held := false
	for deadline := time.Now().Add(30 * time.Second); !held; <-ticker.C {
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`).Scan(&held)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no migration waits: %v", err)
		}
	}
}

// A new machine is slow, and its PostgreSQL may be killed while a service
// starts for the first time.
func TestAServiceWhoseDatabaseDiesWhileItMigratesSaysSoAndTheNextStartGoesOn(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Unsafe: true, SharedBuffersMB: 16, MaxConnections: 20})
	admin := pgtest.On(t, srv, "messaging")
	url := process.Secret(srv.DSN(admin.Config().ConnConfig.Database))
	svc := process.Service{DatabaseURL: url, MigrateURL: url, DatabaseConns: 2}
	pool, err := svc.OpenPool(t.Context(), "order http")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	holdMigration(t, admin)
	ended := make(chan error, 1)
	go func() { ended <- svc.PrepareDatabase(t.Context(), "order", pool) }()
	awaitHeld(t, admin)
	srv.Kill()
	err = <-ended
	for _, want := range []string{"migrate order", "migration 1", "the database went away or was busy", "what was migrated stays", "start again"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if err != nil && (strings.Contains(err.Error(), "CREATE") || strings.Contains(err.Error(), "\n")) {
		t.Errorf("got %v, want one line without the statement", err)
	}

	if err := svc.PrepareDatabase(t.Context(), "order", pool); err == nil || !strings.Contains(err.Error(), "start again") {
		t.Errorf("got %v while the server is away, want that one must start again", err)
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin.Reset() // its sessions have died with the server
	if _, err := admin.Exec(t.Context(), `DROP EVENT TRIGGER hold`); err != nil {
		t.Fatal(err)
	}
	next, err := svc.OpenPool(t.Context(), "order http")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := svc.PrepareDatabase(t.Context(), "order", next); err != nil {
		t.Errorf("the next start: %v", err)
	}
}

// To start again does not mend an address.
func TestADatabaseThatDoesNotExistIsTheFlagsFault(t *testing.T) {
	t.Parallel()
	url := addressOf(t)
	svc := process.Service{DatabaseURL: url, DatabaseConns: 2}
	pool, err := svc.OpenPool(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	svc.MigrateURL = process.Secret(strings.Replace(string(url), "/"+pool.Config().ConnConfig.Database, "/nowhere", 1))
	err = svc.PrepareDatabase(t.Context(), "order", pool)
	if err == nil || !strings.Contains(err.Error(), "check --migrate-url") || strings.Contains(err.Error(), "start again") {
		t.Errorf("got %v, want that --migrate-url is to be checked, and not another start", err)
	}
}
