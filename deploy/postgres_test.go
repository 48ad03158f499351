package deploy_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/pgserver"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

var (
	databases = []string{"order", "points", "notify", "search", "console"}
	relayed   = []string{"order", "points", "notify"}
)

// A cluster is a server that was set up with the script of this folder and
// migrated as the owner, as in the containers.
type cluster struct{ *pgserver.Server }

func newCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{pgtest.Start(t, pgserver.Config{Unsafe: true, MaxConnections: 60, SharedBuffersMB: 32})}
	c.setUp(t)
	for _, service := range databases {
		if err := postgres.Migrate(t.Context(), c.dsn("shop_owner", service), service); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// setUp runs roles.sql. psql would do it, too, but does not come with every
// server; so its one command is left out, and what it includes is set here.
func (c cluster) setUp(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile("postgres/roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	conn := c.connect(t, "postgres", "postgres")
	for _, role := range regexp.MustCompile(`'(shop_[a-z]+)', +\d`).FindAllStringSubmatch(string(raw), -1) {
		if _, err := conn.Exec(t.Context(), "SET orderpaid."+role[1]+" = 'secret'"); err != nil {
			t.Fatal(err)
		}
	}
	for statement := range strings.SplitSeq(string(raw), ";\n\n") {
		if strings.Contains(statement, `\ir`) {
			statement = statement[strings.Index(statement, "\n\n"):] // up to the blank line behind it
			statement = strings.ReplaceAll(statement, `\ir /secrets/passwords.sql`, "")
		}
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%v in\n%s", err, statement)
		}
	}
}

func (c cluster) dsn(role, service string) string {
	database := service
	if service != "postgres" {
		database = "shop_" + service
	}
	u, err := url.Parse(c.DSN(database))
	if err != nil {
		panic(err) // pgserver made it
	}
	u.User = url.UserPassword(role, "secret")
	return u.String()
}

func (c cluster) connect(t *testing.T, role, service string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.dsn(role, service))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// What each role may do with each table, in words: one line for each set of
// rights. Partitions are left out: nobody has rights on one.
const sqlGrants = `
SELECT rights, string_agg(relname, ', ' ORDER BY relname)
  FROM (SELECT c.relname,
               (SELECT string_agg(p, ' ' ORDER BY n) FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) WITH ORDINALITY r (p, n)
                 WHERE has_table_privilege($1, c.oid, p)) AS rights
          FROM pg_class c
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
           AND (NOT c.relispartition OR c.relname LIKE 'order\_document\_%')) t
 WHERE rights IS NOT NULL
 GROUP BY rights ORDER BY rights`

func (c cluster) grants(t *testing.T, role, service string) string {
	t.Helper()
	rows, err := c.connect(t, "postgres", service).Query(t.Context(), sqlGrants, role)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	var rights, tables string
	if _, err := pgx.ForEachRow(rows, []any{&rights, &tables}, func() error {
		fmt.Fprintf(&text, "  %s\n      %s\n", rights, tables)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestSecurityPageHasTheRealGrants(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	raw, err := os.ReadFile("../docs/07-security.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for _, service := range databases {
		want := fmt.Sprintf("shop_%[1]s in shop_%[1]s\n%s", service, c.grants(t, "shop_"+service, service))
		if !strings.Contains(page, want) {
			t.Errorf("docs/07-security.md has not\n%s", want)
		}
	}
	for _, service := range relayed {
		if want := "shop_relay in shop_order, shop_points, shop_notify\n" + c.grants(t, "shop_relay", service); !strings.Contains(page, want) {
			t.Errorf("docs/07-security.md has not\n%s (of %s)", want, service)
		}
	}
}

func TestRolesComeIntoTheirOwnDatabasesOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	allowed := map[string][]string{"shop_relay": relayed, "shop_audit": databases, "shop_owner": databases}
	for _, service := range databases {
		allowed["shop_"+service] = []string{service}
	}
	for role, own := range allowed {
		for _, service := range append(slices.Clone(databases), "postgres") {
			conn, err := pgx.Connect(t.Context(), c.dsn(role, service))
			if err == nil {
				err = conn.Close(t.Context())
			}
			if want := slices.Contains(own, service); (err == nil) != want {
				t.Errorf("%s in %s: %v; may it? %v", role, service, err, want)
			}
		}
	}
}

// Each is tried in the database of the role's own service, by the role.
var forbidden = map[string][]string{
	"DDL":               {`CREATE TABLE spy (id int)`, `CREATE TEMPORARY TABLE spy (id int)`, `CREATE FUNCTION spy() RETURNS int LANGUAGE sql AS 'SELECT 1'`, `ALTER TABLE message_outbox ADD COLUMN spy int`, `DROP TABLE message_inbox`, `CREATE SCHEMA spy`, `CREATE DATABASE spy`, `CREATE ROLE spy`},
	"emptying":          {`TRUNCATE message_outbox`, `TRUNCATE message_outbox_pending`, `TRUNCATE message_inbox`},
	"changing facts":    {`UPDATE message_outbox SET kind = 'x'`, `DELETE FROM message_outbox`, `DELETE FROM message_outbox_publication`},
	"changing the past": {`UPDATE operator_action SET actor = 'x'`, `DELETE FROM operator_action`, `UPDATE goose_messaging SET is_applied = true`},
	"the server":        {`COPY (SELECT 1) TO PROGRAM 'true'`, `SELECT pg_read_file('/etc/passwd')`, `ALTER SYSTEM SET fsync = off`, `SELECT message_prepare_partitions(1)`},
	"other roles":       {`SET ROLE shop_owner`, `SET ROLE postgres`, `SELECT rolpassword FROM pg_authid`},
}

func TestNoRoleCanDoWhatIsForbiddenToAll(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, who := range []struct{ role, service string }{
		{"shop_order", "order"}, {"shop_points", "points"}, {"shop_notify", "notify"}, {"shop_search", "search"},
		{"shop_console", "console"}, {"shop_relay", "order"}, {"shop_audit", "order"},
	} {
		conn := c.connect(t, who.role, who.service)
		for what, statements := range forbidden {
			for _, statement := range statements {
				if _, err := conn.Exec(t.Context(), statement); !denied(err) {
					t.Errorf("%s, %s: %s: %v, want it denied", who.role, what, statement, err)
				}
			}
		}
	}
}

// C147: a month was added, and a service could change the facts of it: not in the
// table that all read, but in the partition.
func TestAMonthThatIsMadeLaterIsNoWayToChangeFacts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, service := range databases {
		if _, err := c.connect(t, "shop_owner", service).Exec(t.Context(), `SELECT message_prepare_partitions(14)`); err != nil {
			t.Fatal(err)
		}
		for _, role := range []string{"shop_" + service, "shop_relay"} {
			var open []string
			err := c.connect(t, "postgres", service).QueryRow(t.Context(), `
				SELECT array_agg(c.relname::text) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
				 WHERE c.relname LIKE 'message\_%' AND has_table_privilege($1, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')`, role).Scan(&open)
			if err != nil || len(open) > 0 {
				t.Errorf("%s may change %v, %v, want none", role, open, err)
			}
		}
	}
}

// C146: the shop came with an image whose libraries sort text in another way.
func TestNoIndexDependsOnHowTheSystemSortsText(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, service := range databases {
		var collation string
		err := c.connect(t, "postgres", service).QueryRow(t.Context(), `SELECT datcollate FROM pg_database WHERE datname = current_database()`).Scan(&collation)
		if err != nil || collation != "C" {
			t.Errorf("%s sorts by %q, %v, want by bytes", service, collation, err)
		}
	}
}

// denied: insufficient_privilege; for the auditor also that its transactions
// only read.
func denied(err error) bool { return slices.Contains([]string{"42501", "25006"}, postgres.Code(err)) }

func TestRelaySeesNothingButTheOutbox(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for service, tables := range map[string][]string{
		"order":  {"orders", "order_line", "payment", "payment_callback", "idempotency_key", "message_inbox", "message_failure", "operator_action"},
		"points": {"points_entry", "points_balance", "message_inbox"},
		"notify": {"contact", "delivery_task", "message_failure"},
	} {
		conn := c.connect(t, "shop_relay", service)
		for _, table := range tables {
			if _, err := conn.Exec(t.Context(), "SELECT FROM "+table); !denied(err) {
				t.Errorf("the relay reads %s of %s: %v", table, service, err)
			}
		}
		if _, err := conn.Exec(t.Context(), `INSERT INTO message_outbox (event_id, shard, aggregate_type, aggregate_id, aggregate_version, kind, subject, payload)
			VALUES (gen_random_uuid(), 0, 'x', 'x', 1, 'x', 'x', '')`); !denied(err) {
			t.Errorf("the relay states an event of its own in %s: %v", service, err)
		}
		if _, err := conn.Exec(t.Context(), `INSERT INTO relay_lease (shard) VALUES (1) ON CONFLICT DO NOTHING`); !denied(err) {
			t.Errorf("the relay makes a lease in %s: %v", service, err)
		}
	}
}

func TestEachRoleHasItsLimits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, who := range []struct{ role, service, want string }{
		{"shop_order", "order", "10s 3s 15s"}, {"shop_relay", "order", "10s 3s 15s"}, {"shop_points", "points", "10s 3s 15s"},
		{"shop_notify", "notify", "10s 3s 15s"}, {"shop_search", "search", "10s 3s 15s"}, {"shop_console", "console", "10s 3s 15s"},
		{"shop_audit", "order", "1min 3s 1min"}, {"shop_owner", "order", "0 5s 1min"},
	} {
		var statement, lock, idle string
		if err := c.connect(t, who.role, who.service).QueryRow(t.Context(), `SELECT current_setting('statement_timeout'),
			current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')`).Scan(&statement, &lock, &idle); err != nil {
			t.Fatal(err)
		}
		if got := statement + " " + lock + " " + idle; got != who.want {
			t.Errorf("%s: %s, want %s", who.role, got, who.want)
		}
	}
}

// granted is an event of this test.
type granted struct{}

func (granted) Kind() messaging.Kind {
	return messaging.Kind{Context: "points", Type: "Granted", Version: 1, Aggregate: "points_entry"}
}

func TestServiceStatesAndRelayPublishesWithTheRightsOfTheirRoles(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	service, relays := c.pool(t, "shop_points", "points"), c.pool(t, "shop_relay", "points")
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "points"})
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.InTx(t.Context(), service, func(tx pgx.Tx) error {
		return outbox.Add(t.Context(), tx, messaging.New("entry-1", 1, granted{}))
	}); err != nil {
		t.Fatal(err)
	}
	relay, err := messaging.NewRelay(relays, membroker.New(), messaging.RelayConfig{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	published := 0
	for deadline := time.Now().Add(patience); published == 0 && time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if err := service.QueryRow(t.Context(), `SELECT count(*) FROM message_outbox_publication`).Scan(&published); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ended; published != 1 || err != nil {
		t.Errorf("%d events are published, the relay ended with %v; want 1 and nil", published, err)
	}
}

func (c cluster) pool(t *testing.T, role, service string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), c.dsn(role, service), postgres.Config{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
