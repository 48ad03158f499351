package process

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/postgres"
)

// Service is what every service is configured with. A service's own Config
// embeds it, and sets where it listens unless told otherwise:
//
//	type Config struct {
//		process.Service `kong:"set='http_addr=127.0.0.1:8081',set='ops_addr=127.0.0.1:9081'"`
//		ContactDomain   string `help:"…"`
//	}
//
// Give secrets through the environment: other users of the machine can see
// flags.
type Service struct {
	HTTPAddr string `name:"http-addr" env:"HTTP_ADDR" default:"${http_addr}" placeholder:"HOST:PORT" help:"Where the API listens. Defaults to ${http_addr}."`
	OpsAddr  string `name:"ops-addr" env:"OPS_ADDR" default:"${ops_addr}" placeholder:"HOST:PORT" help:"Where /livez, /readyz and /metrics listen; keep it private. Defaults to ${ops_addr}."`

	DatabaseURL   Secret `name:"database-url" env:"DATABASE_URL" required:"" placeholder:"URL" help:"The service's database, as the role that serves requests."`
	MigrateURL    Secret `name:"migrate-url" env:"MIGRATE_URL" placeholder:"URL" help:"The same database as a role that may create tables. If given, the service migrates at start; if not, it verifies the schema and refuses to start on an old one."`
	DatabaseConns int32  `name:"database-conns" env:"DATABASE_CONNS" default:"8" help:"Most connections in one pool. A service has one pool for requests and one for its consumers. Defaults to 8."`

	NATSURL Secret `name:"nats-url" env:"NATS_URL" default:"nats://127.0.0.1:4222" placeholder:"URL" help:"The broker. Defaults to nats://127.0.0.1:4222."`

	TraceParentMode string `name:"trace-parent-mode" env:"TRACE_PARENT_MODE" enum:"link,child" default:"link" help:"How the handling of an event refers to the trace that created it: link (a trace of its own) or child (one long trace, good for demonstrations). Defaults to link."`
}

// Validate finds, before anything is opened, what could not work. A Config
// with a Validate of its own must call it.
func (s Service) Validate() error {
	for _, addr := range []struct{ flag, value string }{{"--http-addr", s.HTTPAddr}, {"--ops-addr", s.OpsAddr}} {
		if _, _, err := net.SplitHostPort(addr.value); err != nil {
			return fmt.Errorf("%s: %q is not host:port", addr.flag, addr.value)
		}
	}
	for _, url := range []struct {
		flag  string
		value Secret
	}{{"--database-url", s.DatabaseURL}, {"--migrate-url", s.MigrateURL}} {
		if _, err := pgxpool.ParseConfig(string(url.value)); err != nil {
			return fmt.Errorf("%s: not a PostgreSQL address like postgres://user:password@host:5432/database", url.flag)
		}
	}
	if s.DatabaseConns < 2 {
		return fmt.Errorf("--database-conns: %d is too few, at least 2", s.DatabaseConns)
	}
	return nil
}

// OpenPool opens a pool of the service's database. purpose ("points http",
// "points consumers") is what the server shows about its sessions. The caller
// closes it.
func (s Service) OpenPool(ctx context.Context, purpose string) (*pgxpool.Pool, error) {
	pool, err := postgres.Open(ctx, string(s.DatabaseURL), postgres.Config{MaxConns: s.DatabaseConns, ApplicationName: purpose})
	if err != nil {
		return nil, fmt.Errorf("%w; check that PostgreSQL runs and that --database-url is right", err)
	}
	return pool, nil
}

// PrepareDatabase makes sure that the schema is at least what this program
// needs: it migrates if MigrateURL is given, and verifies in any case.
func (s Service) PrepareDatabase(ctx context.Context, owner string, pool *pgxpool.Pool) error {
	if s.MigrateURL != "" {
		switch err := postgres.Migrate(ctx, string(s.MigrateURL), owner); {
		case errors.Is(err, postgres.ErrInterrupted):
			return fmt.Errorf("%w; check that PostgreSQL runs and that --migrate-url is right, and start again", err)
		case err != nil:
			return fmt.Errorf("%w; check --migrate-url", err)
		}
	}
	err := postgres.CheckMigrated(ctx, pool, owner)
	if postgres.Classify(err) == postgres.Transient {
		err = fmt.Errorf("%w; check that PostgreSQL runs, and start again", err)
	}
	return err
}
