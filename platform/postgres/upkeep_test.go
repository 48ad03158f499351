package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func migrateAgain(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if err := postgres.Migrate(t.Context(), pool.Config().ConnString(), "messaging"); err != nil {
		t.Fatal(err)
	}
}

// C132: nobody has ever made partitions since the first ones, which were for a year.
func TestEveryStartMakesThePartitionsOfTheComingYear(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	const sqlPartitions = `SELECT count(*)::int FROM pg_inherits WHERE inhparent = 'message_outbox'::regclass`
	var before, after int
	if err := pool.QueryRow(t.Context(), sqlPartitions).Scan(&before); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `DO $$ DECLARE p regclass; BEGIN
		FOR p IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'message_outbox'::regclass ORDER BY inhrelid DESC LIMIT 11
		LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $$`)
	migrateAgain(t, pool)
	if err := pool.QueryRow(t.Context(), sqlPartitions).Scan(&after); err != nil || after != before {
		t.Errorf("got %d partitions, %v, want the %d that were there", after, err, before)
	}
}

// C132: a long report reads the outbox meanwhile. The start goes on without.
func TestAStartDoesNotFailForPartitionsThatCanBeMadeLater(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	mustExec(t, pool, `DO $$ BEGIN EXECUTE 'DROP TABLE message_outbox' || to_char(now() AT TIME ZONE 'UTC' + interval '11 months', '"_"YYYY"_"MM'); END $$`)
	reader, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(t.Context())
	if _, err := reader.Exec(t.Context(), `SELECT FROM message_outbox`); err != nil {
		t.Fatal(err)
	}
	migrateAgain(t, pool)
}

// C133: the database was brought to a new server by logical replication, which
// copies rows and leaves sequences where they began.
func TestNumbersGoOnBehindThoseThatAreInUse(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	mustExec(t, pool, `INSERT INTO message_outbox (event_id, id, shard, aggregate_type, aggregate_id, aggregate_version, kind, subject, payload)
		SELECT (left(message_uuid_floor(now())::text, 24) || lpad(to_hex(n), 12, '0'))::uuid, 5000 + n, 0, 'thing', 'a', n, 'k', 's', '' FROM generate_series(1, 3) n`)
	mustExec(t, pool, `INSERT INTO operator_action (action_id, actor, action, target, reason) OVERRIDING SYSTEM VALUE VALUES (1, 'alice', 'retry', 'failure 1', 'r')`)
	migrateAgain(t, pool)
	var fact, action int64
	err := pool.QueryRow(t.Context(), `SELECT nextval('message_outbox_id_seq')`).Scan(&fact)
	if err != nil || fact <= 5003 {
		t.Errorf("the next fact would be %d, %v, want one behind 5003", fact, err)
	}
	err = pool.QueryRow(t.Context(), `INSERT INTO operator_action (actor, action, target, reason) VALUES ('bob', 'retry', 'failure 2', 'r') RETURNING action_id`).Scan(&action)
	if err != nil || action != 2 {
		t.Errorf("got action %d, %v, want 2", action, err)
	}
	migrateAgain(t, pool)
	var next int64
	if err := pool.QueryRow(t.Context(), `SELECT nextval('message_outbox_id_seq')`).Scan(&next); err != nil || next != fact+1 {
		t.Errorf("once more: the next fact would be %d, %v, want %d", next, err, fact+1)
	}
}
