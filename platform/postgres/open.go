package postgres

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
)

// Config configures a pool. The zero value works.
type Config struct {
	// MaxConns bounds the pool. All pools of all processes together must stay
	// below the server's max_connections. Defaults to 8.
	MaxConns int32

	// ApplicationName is what pg_stat_activity, the server's log and the
	// pool's metrics show. Defaults to the name of the executable.
	ApplicationName string

	// StatementTimeout ends a single statement. Defaults to 10 s.
	StatementTimeout time.Duration

	// LockTimeout ends the wait for a single row or table lock. It is shorter
	// than StatementTimeout, so that a caller learns that it waited for a
	// lock (55P03) and not merely that it was slow. Defaults to 3 s.
	LockTimeout time.Duration

	// IdleInTxTimeout ends a session that holds a transaction open and does
	// nothing: its locks would stop others, and its snapshot would stop
	// vacuum. Defaults to 15 s.
	IdleInTxTimeout time.Duration

	// Lazy returns the pool without asking the server, for a caller that can
	// wait for it. Defaults to asking: a service that cannot reach its database
	// says so at its start.
	Lazy bool
}

// The limits that no service has had a reason to change.
const (
	connectTimeout = 5 * time.Second
	pingTimeout    = 2 * time.Second  // of a connection that has been idle for more than a second
	lifetime       = 1 * time.Hour    // after which a connection is replaced, so that a pool follows a failover
	idleTime       = 30 * time.Second // after which a session that nobody used ends: each costs the server 3 to 4 MB
	lifetimeJitter = 10 * time.Minute // so that a pool does not replace all of its connections at once
)

// Open returns a pool whose first connection has answered: a wrong address or
// password ends the start of a service, not its first request. The caller
// closes the pool.
//
// What dsn sets as a session parameter (for example statement_timeout) wins
// over the defaults of [Config], and loses against a value that cfg names.
func Open(ctx context.Context, dsn string, cfg Config) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read database address: %w", err) // pgx masks the password
	}
	pc.MaxConns = cmp.Or(cfg.MaxConns, 8)
	pc.MaxConnLifetime = lifetime
	pc.MaxConnLifetimeJitter = lifetimeJitter
	pc.MaxConnIdleTime = idleTime
	pc.HealthCheckPeriod = idleTime / 2
	pc.PingTimeout = pingTimeout
	pc.BeforeConnect = readSecretsAgain(dsn)
	pc.AfterConnect = RegisterTypes
	pc.ConnConfig.OnPgError = endUseless(pc.ConnConfig.OnPgError)
	// Parameters of queries are personal data; the tracer leaves them out
	// unless told otherwise.
	pc.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithDisableAcquireTracer())
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = connectTimeout
	}
	setSession(pc.ConnConfig.RuntimeParams, cfg)

	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", pc.ConnConfig.Database, err)
	}
	if cfg.Lazy {
		return pool, nil
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database %s: %w", pc.ConnConfig.Database, err)
	}
	// One name for each pool: a service has several on one database, and the
	// wait for a connection is measured for each.
	poolName := attribute.String("db.client.connection.pool.name", pc.ConnConfig.RuntimeParams["application_name"])
	if err := otelpgx.RecordStats(pool, otelpgx.WithStatsAttributes(poolName)); err != nil {
		pool.Close()
		return nil, fmt.Errorf("measure pool of database %s: %w", pc.ConnConfig.Database, err)
	}
	return pool, nil
}

// readSecretsAgain has each session log in with what the files that dsn names
// hold by then: passwords and certificates are renewed there. A pool that kept
// those of its start would work until its sessions have reached their lifetime,
// and let nobody in from then on. While the files cannot be read, being replaced
// perhaps, it keeps what it has: whether that still does, the server decides.
func readSecretsAgain(dsn string) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, cc *pgx.ConnConfig) error {
		if now, err := pgx.ParseConfig(dsn); err == nil {
			cc.Password, cc.TLSConfig, cc.Fallbacks = now.Password, now.TLSConfig, now.Fallbacks
		}
		return nil
	}
}

// endUseless closes sessions beside those that pgx closes, which a ping does not
// find out: the pool would hand them out again, for much to fail, until their
// lifetime is over. Some can read and not write any more, because their server
// was the primary and is none now; a new one asks the address who is the primary.
// Of others somebody has taken the prepared statements away.
func endUseless(known pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(conn *pgconn.PgConn, err *pgconn.PgError) (keep bool) {
		switch err.Code {
		case readOnly, notPrepared, preparedYet:
			return false
		}
		return known(conn, err)
	}
}

// setSession writes the parameters that each new session starts with.
func setSession(params map[string]string, cfg Config) {
	set := func(name, configured, standard string) {
		if configured != "" {
			params[name] = configured
		} else if params[name] == "" {
			params[name] = standard
		}
	}
	set("application_name", cfg.ApplicationName, filepath.Base(os.Args[0]))
	set("statement_timeout", milliseconds(cfg.StatementTimeout), "10000")
	set("lock_timeout", milliseconds(cfg.LockTimeout), "3000")
	set("idle_in_transaction_session_timeout", milliseconds(cfg.IdleInTxTimeout), "15000")
	set("timezone", "", "UTC")
}

func milliseconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}
