package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

// newEmpty returns a pool to a database without any schema.
func newEmpty(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t, "messaging")
	_, err := pool.Exec(t.Context(), `CREATE SCHEMA empty`)
	if err != nil {
		t.Fatal(err)
	}
	dsn := pool.Config().ConnString() + "&search_path=empty"
	empty, err := postgres.Open(t.Context(), dsn, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(empty.Close)
	return empty
}

// C23: replicas that start together do not migrate side by side.
func TestFiveReplicasMigrateAnEmptyDatabaseAtOnce(t *testing.T) {
	t.Parallel()
	pool := newEmpty(t)
	if err := postgres.CheckMigrated(t.Context(), pool, "messaging"); err == nil || !strings.Contains(err.Error(), "lacks migrations [1") {
		t.Errorf("before: got %v, want an error that names what is missing", err)
	}
	began := time.Now()
	var replicas sync.WaitGroup
	for range 5 {
		replicas.Go(func() {
			if err := postgres.Migrate(t.Context(), pool.Config().ConnString(), "messaging"); err != nil {
				t.Error(err)
				return
			}
			if err := postgres.CheckMigrated(t.Context(), pool, "messaging"); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	t.Logf("five replicas were ready after %v", time.Since(began))
	applied := strings.Fields(appliedVersions(t, pool, "goose_messaging"))
	if once := slices.Compact(slices.Clone(applied)); len(once) != len(applied) {
		t.Errorf("got versions %v, want each once", applied)
	}
}

// C23: those that wait for the lock wait as long as a migration takes.
func TestFiveReplicasWaitForOneSlowMigration(t *testing.T) {
	t.Parallel()
	pool := newEmpty(t)
	files := fstest.MapFS{
		"00001_base.sql": {Data: []byte("-- +goose Up\nCREATE TABLE base (id bigint);\n")},
		"00002_slow.sql": {Data: []byte("-- +goose Up\nSELECT pg_sleep(1);\nALTER TABLE base ADD COLUMN slow text;\n")},
		// CREATE INDEX CONCURRENTLY waits for every snapshot: also for those
		// of replicas that wait for the lock, if they held one.
		"00003_index.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY base_idx ON base (slow);\n")},
	}
	var replicas sync.WaitGroup
	for range 5 {
		replicas.Go(func() {
			if err := postgres.MigrateFiles(t.Context(), pool.Config().ConnString(), "slow", files); err != nil {
				t.Error(err)
				return
			}
			if _, err := pool.Exec(t.Context(), `SELECT slow FROM base`); err != nil {
				t.Errorf("a replica went on before the schema was complete: %v", err)
			}
		})
	}
	replicas.Wait()
	if got, want := appliedVersions(t, pool, "goose_slow"), "0 1 2 3"; got != want {
		t.Errorf("got versions %q, want %q", got, want)
	}
}

func TestMigrationThatFailsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	pool := newEmpty(t)
	files := fstest.MapFS{
		"00001_bad.sql": {Data: []byte("-- +goose Up\nCREATE TABLE half (id bigint);\nSELECT 1 / 0;\n")},
	}
	err := postgres.MigrateFiles(t.Context(), pool.Config().ConnString(), "bad", files)
	if got, want := postgres.Code(err), "22012"; got != want {
		t.Errorf("got code %q of %v, want %q", got, err, want)
	}
	if _, err := pool.Exec(t.Context(), `SELECT FROM half`); postgres.Code(err) != "42P01" {
		t.Errorf("got %v, want that the table does not exist", err)
	}
	if got, want := appliedVersions(t, pool, "goose_bad"), "0"; got != want {
		t.Errorf("got versions %q, want %q", got, want)
	}
}

// C50: whoever writes waits behind a migration that waits for a reader, and so
// that one must give up.
func TestAMigrationBehindALongReaderGivesUpAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	pool := newEmpty(t)
	files := fstest.MapFS{
		"00001_base.sql":   {Data: []byte("-- +goose Up\nCREATE TABLE base (id bigint);\n")},
		"00002_column.sql": {Data: []byte("-- +goose Up\nCREATE TABLE half (id bigint);\nALTER TABLE base ADD COLUMN late text;\n")},
	}
	first := fstest.MapFS{"00001_base.sql": files["00001_base.sql"]}
	dsn := pool.Config().ConnString()
	if err := postgres.MigrateFiles(t.Context(), dsn, "behind", first); err != nil {
		t.Fatal(err)
	}
	reader, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(t.Context())
	if _, err := reader.Exec(t.Context(), `SELECT FROM base`); err != nil {
		t.Fatal(err)
	}

	err = postgres.MigrateFiles(t.Context(), dsn, "behind", files)
	if got, want := postgres.Code(err), "55P03"; got != want {
		t.Errorf("got code %q of %v, want %q: it waited for too long for its lock", got, err, want)
	}
	if _, err := pool.Exec(t.Context(), `SET LOCAL lock_timeout = '1s'; INSERT INTO base VALUES (1)`); err != nil {
		t.Errorf("got %v, want that a row can be written although the reader goes on", err)
	}
	if got, want := appliedVersions(t, pool, "goose_behind"), "0 1"; got != want {
		t.Errorf("got versions %q, want %q", got, want)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := postgres.MigrateFiles(t.Context(), dsn, "behind", files); err != nil {
		t.Errorf("got %v, want that the next start finishes it", err)
	}
}

func TestNewerSchemaThanTheProgramIsFine(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	if _, err := pool.Exec(t.Context(), `INSERT INTO goose_messaging (version_id, is_applied) VALUES (99999, true)`); err != nil {
		t.Fatal(err)
	}
	if err := postgres.CheckMigrated(t.Context(), pool, "messaging"); err != nil {
		t.Error(err)
	}
	if err := postgres.Migrate(t.Context(), pool.Config().ConnString(), "messaging"); err != nil {
		t.Error(err)
	}
}

func TestUnknownOwnersAreRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	for _, owner := range []string{"", "nosuchservice", "Order", "x; DROP TABLE message_outbox"} {
		if err := postgres.Migrate(t.Context(), pool.Config().ConnString(), owner); err == nil {
			t.Errorf("Migrate(%q) returned nil", owner)
		}
		if err := postgres.CheckMigrated(t.Context(), pool, owner); err == nil {
			t.Errorf("CheckMigrated(%q) returned nil", owner)
		}
	}
}

// Replicas of one service may run in different zones, and the months of a
// partitioned table must fit together whoever made them.
func TestPartitionsAreTheSameInEveryTimeZone(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Asia/Tokyo", "America/New_York"}
	first := ""
	for _, zone := range zones {
		pool := pgtest.New(t, "messaging")
		got := partitionsMadeIn(t, pool, zone)
		if got, want := strings.Count(got, "\n"), 3*(1+1+17); got != want { // of three tables: last month, this one, 17 ahead
			t.Errorf("%s: got %d partitions, want %d", zone, got, want)
		}
		if first == "" {
			first = got
		}
		if got != first {
			t.Errorf("%s: got other partitions than in %s:\n%s\nwant:\n%s", zone, zones[0], got, first)
		}
	}
}

// Bounds of the monthly partitions; each must begin where the one before ends.
const sqlPartitionBounds = `
	SELECT i.inhparent::regclass::text, substring(p.relname FROM '\d{4}_\d{2}$'),
	       substring(pg_get_expr(p.relpartbound, p.oid) FROM 'FROM \(''(\S+)''\)'),
	       substring(pg_get_expr(p.relpartbound, p.oid) FROM 'TO \(''(\S+)''\)')
	  FROM pg_inherits i
	  JOIN pg_class p ON p.oid = i.inhrelid
	 WHERE p.relkind = 'r' AND pg_get_expr(p.relpartbound, p.oid) <> 'DEFAULT'
	 ORDER BY 1, 2`

// partitionsMadeIn drops the monthly partitions, makes them in two goes in a
// session of that zone, checks that they touch, and returns them as text.
func partitionsMadeIn(t *testing.T, pool *pgxpool.Pool, zone string) string {
	t.Helper()
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`DO $$ DECLARE p regclass; BEGIN
				FOR p IN SELECT inhrelid::regclass FROM pg_inherits JOIN pg_class ON oid = inhrelid
				          WHERE relkind = 'r' AND pg_get_expr(relpartbound, oid) <> 'DEFAULT'
				LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $$`,
			fmt.Sprintf(`SET LOCAL timezone = '%s'`, zone),
			`SELECT message_prepare_partitions(12)`,
			`SET LOCAL timezone = 'Pacific/Kiritimati'`, // 14 hours ahead of UTC
			`SELECT message_prepare_partitions(17)`,
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", zone, err)
	}
	rows, _ := pool.Query(t.Context(), sqlPartitionBounds)
	var out strings.Builder
	var table, month, from, to, lastTable, lastTo string
	_, err = pgx.ForEachRow(rows, []any{&table, &month, &from, &to}, func() error {
		if table == lastTable && from != lastTo {
			t.Errorf("%s: %s of %s begins at %s, the month before ends at %s", zone, table, month, from, lastTo)
		}
		lastTable, lastTo = table, to
		_, err := fmt.Fprintln(&out, table, month, from, to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func appliedVersions(t *testing.T, pool *pgxpool.Pool, table string) (versions string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT string_agg(version_id::text, ' ' ORDER BY version_id, id) FROM `+table).Scan(&versions)
	if err != nil {
		t.Fatal(err)
	}
	return versions
}
