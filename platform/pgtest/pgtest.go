// Package pgtest gives every test a PostgreSQL database of its own, with the
// schema of its owner and nothing in it. The database is real: what is tested
// here is the SQL.
//
// The cluster is the one that ORDERPAID_TEST_PG names (scripts/test sets it),
// or else a private one that this package starts for the test binary and that
// ends with it. Databases are cloned from a template, which is migrated once;
// a clone takes some tens of milliseconds.
//
// A test that fails keeps its database, and its address is in the log.
//
// Read in this order: pgtest.go, template.go, cluster.go, prepare.go.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/pgserver"
	"orderpaid/platform/postgres"
)

// setupTimeout bounds everything that happens before a test gets its database;
// the first test of a binary also waits for a cluster and a template.
const setupTimeout = 2 * time.Minute

// New returns a pool of 8 connections to a fresh database with the schema of
// owner, for example "order"; "messaging" has the messaging tables only. The
// pool is closed and the database dropped when the test ends, unless it failed.
//
// pool.Config().ConnString() is the address, for what opens its own pool.
func New(t testing.TB, owner string) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	admin := clusterDSN(t)
	template, err := ensureTemplate(ctx, admin, owner)
	if err != nil {
		t.Fatalf("make template database of %s: %v", owner, err)
	}
	name := databaseName(t)
	if err := clone(ctx, admin, template, name); err != nil {
		t.Fatalf("clone %s to %s: %v", template, name, err)
	}
	dsn := withDatabase(t, admin, name)
	pool, err := postgres.Open(ctx, dsn, postgres.Config{ApplicationName: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if t.Failed() {
			keepCluster(t)
			t.Logf("the database of this test is kept: %s", dsn)
			return
		}
		drop(t, admin, name)
	})
	return pool
}

// Durable starts a server for this test alone, with fsync on, which the test
// may Kill and Restart. Use [On] to get a database on it.
func Durable(t testing.TB) *pgserver.Server {
	t.Helper()
	return Start(t, pgserver.Config{SharedBuffersMB: 16, MaxConnections: 50})
}

// Start starts a server for this test alone in a folder of its own, whatever
// cfg.Dir says. It is stopped when the test ends, and its folder removed
// unless the test failed.
func Start(t testing.TB, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	cfg.Dir = tempDir(t)
	srv, err := pgserver.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the server's folder is kept; start it again with: %s", srv.Command())
			return
		}
		removeAll(t, srv.Dir)
	})
	return srv
}

// On creates and migrates a database named after owner on srv, and returns a
// pool that is closed when the test ends.
func On(t testing.TB, srv *pgserver.Server, owner string) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	name := "shop_" + owner
	err := asAdmin(ctx, srv.DSN("postgres"), func(admin *pgx.Conn) error {
		_, err := admin.Exec(ctx, "CREATE DATABASE "+quote(name))
		return err
	})
	if err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	if err := postgres.Migrate(ctx, srv.DSN(name), owner); err != nil {
		t.Fatal(err)
	}
	pool, err := postgres.Open(ctx, srv.DSN(name), postgres.Config{ApplicationName: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// databaseName says which test a database belongs to, in at most 63 bytes.
func databaseName(t testing.TB) string {
	test := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(strings.TrimPrefix(t.Name(), "Test")))
	return "test_" + test[:min(len(test), 45)] + "_" + strings.ToLower(rand.Text()[:10])
}

// withDatabase returns dsn with another database.
func withDatabase(t testing.TB, dsn, database string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		t.Fatalf("%s is not a URL of the form postgres://", EnvDSN) // without its text: it may hold a password
	}
	u.Path = "/" + database
	return u.String()
}

// asAdmin runs fn on a session of its own, which is closed at once: a session
// left open on a template would stop everyone from cloning it.
func asAdmin(ctx context.Context, dsn string, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return fn(conn)
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func drop(t testing.TB, admin, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // t.Context() is done by now
	defer cancel()
	err := asAdmin(ctx, admin, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", quote(name)))
		return err
	})
	if err != nil {
		t.Errorf("drop database %s: %v", name, err)
	}
}
