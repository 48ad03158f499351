package pgtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/migrations"
	"orderpaid/platform/postgres"
)

// ensureTemplate returns the name of the migrated database to clone from,
// after making it if this cluster does not have it. Its name carries a hash of
// the migrations: a changed file is a new template, and two work trees can
// share a cluster.
func ensureTemplate(ctx context.Context, admin, owner string) (string, error) {
	hash, err := hashMigrations(owner)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("template_%s_%s", owner, hash)
	return name, asAdmin(ctx, admin, func(conn *pgx.Conn) error {
		ready, err := exists(ctx, conn, name)
		if err != nil || ready {
			return err
		}
		return makeTemplate(ctx, conn, admin, owner, name)
	})
}

// Test binaries run side by side: one of them makes a template, the others
// wait. Advisory locks belong to a database; all take this one in the
// database that ORDERPAID_TEST_PG names. It ends with the session.
const sqlLockTemplates = `SELECT pg_advisory_lock(1868852841, 2)`

// makeTemplate migrates a database under another name and renames it at the
// end: whoever is killed halfway leaves no template that only looks complete.
func makeTemplate(ctx context.Context, conn *pgx.Conn, admin, owner, name string) error {
	if _, err := conn.Exec(ctx, sqlLockTemplates); err != nil {
		return err
	}
	ready, err := exists(ctx, conn, name)
	if err != nil || ready {
		return err
	}
	unfinished := name + "_new"
	for _, sql := range []string{
		"DROP DATABASE IF EXISTS " + quote(unfinished) + " WITH (FORCE)",
		"CREATE DATABASE " + quote(unfinished) + " TEMPLATE template0",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	u, err := url.Parse(admin)
	if err != nil {
		return err
	}
	u.Path = "/" + unfinished
	if err := postgres.Migrate(ctx, u.String(), owner); err != nil {
		return err
	}
	return retryInUse(ctx, func() error {
		// No connections: a curious psql, or autovacuum, would stop all clones.
		_, err := conn.Exec(ctx, "ALTER DATABASE "+quote(unfinished)+" ALLOW_CONNECTIONS false")
		if err == nil {
			_, err = conn.Exec(ctx, "ALTER DATABASE "+quote(unfinished)+" RENAME TO "+quote(name))
		}
		return err
	})
}

func exists(ctx context.Context, conn *pgx.Conn, name string) (ready bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&ready)
	return ready, err
}

func clone(ctx context.Context, admin, template, name string) error {
	return asAdmin(ctx, admin, func(conn *pgx.Conn) error {
		return retryInUse(ctx, func() error {
			_, err := conn.Exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(template))
			return err
		})
	})
}

// retryInUse repeats fn while the template has a session (55006). Ours are
// closed, but the server may not have noticed yet, and autovacuum has its own.
func retryInUse(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if postgres.Code(err) != "55006" {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hashMigrations returns 12 hex digits that change with any file of owner or
// of messaging, which comes first in every database.
func hashMigrations(owner string) (string, error) {
	sum := sha256.New()
	for _, o := range []string{migrations.Messaging, owner} {
		files, err := migrations.Of(o)
		if err != nil {
			return "", err
		}
		names, err := fs.Glob(files, "*.sql")
		if err != nil {
			return "", err
		}
		for _, name := range names {
			content, err := fs.ReadFile(files, name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s/%s %d\n%s", o, name, len(content), content)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6]), nil
}
