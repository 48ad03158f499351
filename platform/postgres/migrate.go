package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"orderpaid/migrations"
)

// ErrInterrupted says that the database went away while it was migrated, or was
// busy for too long. Each migration is done or not done; the next call of
// [Migrate] begins with the first that is not.
var ErrInterrupted = errors.New("the database went away or was busy: what was migrated stays, and the next try goes on from there")

// Migrate brings a database to the schema of its owner: first what every
// database has (migrations/messaging), then the owner's own folder. It may be
// called by any number of processes at once, each returns when the schema is
// complete. What another try may mend is [ErrInterrupted]. A schema that is
// complete gets partitions of the coming year, and sequences that are beyond
// every number in use.
//
// dsn must belong to a role that may create tables, and must lead to
// PostgreSQL itself: the lock belongs to a session, which a pooler in
// transaction mode would hand to someone else.
func Migrate(ctx context.Context, dsn, owner string) error {
	db, err := openToMigrate(dsn, owner)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", owner, err)
	}
	defer func() { _ = db.Close() }() // nothing is in flight

	for _, o := range layers(owner) {
		files, err := migrationsOf(o)
		if err != nil {
			return fmt.Errorf("migrate %s: %w", o, err)
		}
		if err := migrateOwner(ctx, db, o, files); err != nil {
			return fmt.Errorf("migrate %s: %w", o, explain(err))
		}
	}
	if err := upkeep(ctx, db); err != nil {
		return fmt.Errorf("migrate %s: %w", owner, explain(err))
	}
	return nil
}

// explain says which migration failed, and whether another try may go better:
// a driver's "bad connection" tells neither.
func explain(err error) error {
	var partial *goose.PartialError
	version := ""
	if errors.As(err, &partial) {
		version, err = fmt.Sprintf("migration %d: ", partial.Failed.Source.Version), partial.Err
	}
	if interrupted(err) {
		err = fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return fmt.Errorf("%s%w", version, err)
}

func interrupted(err error) bool {
	if errors.Is(err, context.Canceled) { // by whoever asked for it
		return false
	}
	switch code := Code(err); {
	case strings.HasPrefix(code, "28"), strings.HasPrefix(code, "3D"): // the address is wrong: no such role, password or database
		return false
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone): // how database/sql says that it is lost
		return true
	}
	return Classify(err) != Permanent
}

// openToMigrate returns sessions for migrations. One may take its time, but it
// must not make the whole service queue behind it while it waits for a lock
// that a long query holds.
func openToMigrate(dsn, owner string) (*sql.DB, error) {
	cc, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read database address: %w", err)
	}
	cc.RuntimeParams["statement_timeout"] = "0"
	cc.RuntimeParams["lock_timeout"] = "5000"
	cc.RuntimeParams["application_name"] = "migrate-" + owner
	return stdlib.OpenDB(*cc), nil
}

// CheckMigrated returns an error if the database lacks a migration that this
// program knows. One that this program does not know is fine: during a
// rollout the schema is ahead of the old code.
func CheckMigrated(ctx context.Context, pool *pgxpool.Pool, owner string) error {
	for _, o := range layers(owner) {
		missing, err := missingVersions(ctx, pool, o)
		if err != nil {
			return fmt.Errorf("check migrations of %s: %w", o, err)
		}
		if len(missing) > 0 {
			return fmt.Errorf("database %s lacks migrations %v of %s: run \"shopctl migrate\", or start the service with the address of a role that may migrate",
				pool.Config().ConnConfig.Database, missing, o)
		}
	}
	return nil
}

// layers returns whose migrations make up an owner's database, in order.
func layers(owner string) []string {
	if owner == migrations.Messaging {
		return []string{owner}
	}
	return []string{migrations.Messaging, owner}
}

func migrateOwner(ctx context.Context, db *sql.DB, owner string, files fs.FS) error {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable(owner)),
		goose.WithSessionLocker(sessionLock{}),
		goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	pending, err := hasPending(ctx, db, provider, owner)
	if err != nil || !pending {
		return err
	}
	applied, err := provider.Up(ctx)
	for _, m := range applied {
		slog.InfoContext(ctx, "migration applied", "owner", owner, "version", m.Source.Version, "took", m.Duration)
	}
	return err
}

const sqlTableExists = `SELECT to_regclass($1) IS NOT NULL`

// hasPending answers without the lock, so that the start of a replica on a
// complete schema waits for nobody. It asks goose only once the version table
// exists: goose would create it, without the lock, in a race of all replicas.
func hasPending(ctx context.Context, db *sql.DB, provider *goose.Provider, owner string) (bool, error) {
	var exists bool
	if err := db.QueryRowContext(ctx, sqlTableExists, versionTable(owner)).Scan(&exists); err != nil {
		return false, err
	}
	if !exists {
		return true, nil
	}
	return provider.HasPending(ctx)
}

// missingVersions compares the files of an owner with its version table.
func missingVersions(ctx context.Context, pool *pgxpool.Pool, owner string) ([]int64, error) {
	files, err := migrationsOf(owner)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	var known []int64
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		known = append(known, version)
	}
	rows, _ := pool.Query(ctx, "SELECT version_id FROM "+versionTable(owner)+" WHERE is_applied")
	applied, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil && Code(err) != "42P01" { // undefined_table: never migrated
		return nil, err
	}
	return slices.DeleteFunc(known, func(v int64) bool { return slices.Contains(applied, v) }), nil
}

// ownerPattern keeps an owner fit for the name of a table.
var ownerPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}$`)

func migrationsOf(owner string) (fs.FS, error) {
	if !ownerPattern.MatchString(owner) {
		return nil, fmt.Errorf("owner %q is not a name in lower case", owner)
	}
	files, err := migrations.Of(owner)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("there is no such folder in migrations")
	}
	return files, nil
}

func versionTable(owner string) string { return "goose_" + owner }

// sessionLock lets one process migrate a database at a time. goose brings a
// lock of its own; it looks again only once a second at best, which the start
// of a whole fleet would feel.
//
// It polls instead of waiting inside PostgreSQL: a session that waits for an
// advisory lock holds a snapshot, and CREATE INDEX CONCURRENTLY, run by the
// lock's owner, would wait for that snapshot for ever.
type sessionLock struct{}

var _ lock.SessionLocker = sessionLock{}

// The lock is known by two numbers; the first says that it is this package's.
const (
	sqlTryLock = `SELECT pg_try_advisory_lock(1868852841, 1)`
	sqlUnlock  = `SELECT pg_advisory_unlock(1868852841, 1)`

	lockPoll = 100 * time.Millisecond
)

// SessionLock waits until the lock is free or ctx is done. If its holder dies,
// PostgreSQL frees the lock together with the session.
func (sessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		var locked bool
		if err := conn.QueryRowContext(ctx, sqlTryLock).Scan(&locked); err != nil {
			return fmt.Errorf("lock migrations: %w", err)
		}
		if locked {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another process that migrates: %w", ctx.Err())
		case <-poll.C:
		}
	}
}

func (sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, sqlUnlock); err != nil {
		return fmt.Errorf("unlock migrations: %w", err)
	}
	return nil
}
