package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/pgserver"
	"orderpaid/platform/postgres"
	"orderpaid/platform/process"
)

// SandboxConfig says where a replay is to be tried.
type SandboxConfig struct {
	// AdminURL is the cluster of the service's database, as a role that may
	// create databases and read this one. Required.
	AdminURL process.Secret

	// Database is the service's database. Required.
	Database string

	// Consumer builds the consumer on a copy, with a subscription on which
	// nothing ever comes. Required.
	Consumer func(*pgxpool.Pool, messaging.Subscriber, messaging.ConsumerConfig) (*messaging.Consumer, error)

	// API is what chooses the events: who may be asked for them, and the keys
	// of sealed payloads. Its pool and consumers are set here.
	API opsapi.Config

	// Keep leaves the copy in place, to look into it. Defaults to dropping it.
	Keep bool
}

// A SandboxReport is what a replay did to a copy.
type SandboxReport struct {
	Database string            `json:"database"` // the copy; gone unless it was to be kept
	Copied   string            `json:"copied"`   // how it was made
	Plan     opsapi.ReplayPlan `json:"plan"`
	Replay   messaging.Replay  `json:"replay"`
}

// sandboxPatience is how long a replay may take on a copy.
const sandboxPatience = 10 * time.Minute

// Sandbox runs a replay on a copy of a service's database and drops the copy.
// The consumer runs in this process, on its own: without a broker, without the
// service's other parts, so that nothing leaves the copy.
func Sandbox(ctx context.Context, cfg SandboxConfig, req opsapi.ReplayRequest) (report SandboxReport, err error) {
	report.Database = "sandbox_" + cfg.Database + "_" + strings.ToLower(rand.Text()[:8])
	admin, err := pgx.Connect(ctx, string(cfg.AdminURL))
	if err != nil {
		return report, fmt.Errorf("connect to make a copy: %w", err)
	}
	defer admin.Close(context.WithoutCancel(ctx))
	defer func() { err = errors.Join(err, dropCopy(ctx, admin, report.Database, cfg.Keep)) }()
	if report.Copied, err = makeCopy(ctx, admin, cfg, report.Database); err != nil {
		return report, fmt.Errorf("copy %s: %w", cfg.Database, err)
	}
	dsn, err := withDatabase(string(cfg.AdminURL), report.Database)
	if err != nil {
		return report, err
	}
	pool, err := postgres.Open(ctx, dsn, postgres.Config{MaxConns: 6, ApplicationName: "sandbox"})
	if err != nil {
		return report, err
	}
	defer pool.Close()
	err = runSandbox(ctx, cfg, pool, req, &report)
	return report, err
}

func dropCopy(ctx context.Context, admin *pgx.Conn, name string, keep bool) error {
	if keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if _, err := admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop the copy %s: %w", name, err)
	}
	return nil
}

// inUse is PostgreSQL's refusal to clone a database that somebody uses.
const inUse = "55006"

// makeCopy clones the database, which takes a moment, or, while the service is
// connected to it, dumps and restores it.
func makeCopy(ctx context.Context, admin *pgx.Conn, cfg SandboxConfig, name string) (how string, err error) {
	quoted, source := pgx.Identifier{name}.Sanitize(), pgx.Identifier{cfg.Database}.Sanitize()
	_, err = admin.Exec(ctx, "CREATE DATABASE "+quoted+" TEMPLATE "+source)
	if err == nil {
		return "template", nil
	}
	if postgres.Code(err) != inUse {
		return "", err
	}
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+quoted); err != nil {
		return "", err
	}
	return "pg_dump", dumpAndRestore(ctx, string(cfg.AdminURL), cfg.Database, name)
}

func dumpAndRestore(ctx context.Context, adminURL, from, to string) (err error) {
	dump, restore, err := findTools()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sandbox-") // 0700: it holds customers' data for a moment
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, err := withDatabase(adminURL, from)
	if err != nil {
		return err
	}
	target, err := withDatabase(adminURL, to)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "dump")
	if err := run(ctx, dump, source, "--format=custom", "--file="+file); err != nil {
		return err
	}
	return run(ctx, restore, target, "--no-owner", "--no-privileges", "--exit-on-error", file)
}

// findTools returns pg_dump and pg_restore: beside the server's programs, where
// they are, or in the path.
func findTools() (dump, restore string, err error) {
	server, err := pgserver.Find()
	if err == nil {
		if server, err = filepath.EvalSymlinks(filepath.Join(server, "postgres")); err == nil {
			dump, restore = filepath.Join(filepath.Dir(server), "pg_dump"), filepath.Join(filepath.Dir(server), "pg_restore")
			if _, err := os.Stat(dump); err == nil {
				return dump, restore, nil
			}
		}
	}
	if dump, err = exec.LookPath("pg_dump"); err != nil {
		return "", "", errors.New("the service is connected to its database, so a copy needs pg_dump: install PostgreSQL's client programs")
	}
	if restore, err = exec.LookPath("pg_restore"); err != nil {
		return "", "", errors.New("a copy needs pg_restore: install PostgreSQL's client programs")
	}
	return dump, restore, nil
}

// run runs a program of PostgreSQL. A password travels in the environment: on
// the command line, everybody on the machine could read it.
func run(ctx context.Context, program, dsn string, args ...string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return errors.New("read the address of the database")
	}
	password, _ := u.User.Password()
	u.User = url.User(u.User.Username())
	cmd := exec.CommandContext(ctx, program, append(args, "--dbname="+u.String())...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, OneLine(string(out[:min(len(out), 500)])))
	}
	return nil
}

func withDatabase(dsn, database string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return "", errors.New("the administrator's address must be a URL such as postgres://admin@host/postgres")
	}
	u.Path = "/" + database
	return u.String(), nil
}

// sqlQuiet keeps the copy's consumer from doing anything but the replay: its
// place is free, its own retries and the replays of before stand still.
const sqlQuiet = `
WITH free AS (UPDATE consumer_lease SET lease_until = '-infinity'),
     still AS (UPDATE message_failure SET next_attempt_at = 'infinity' WHERE state = 'retrying')
UPDATE message_replay SET state = 'stopped' WHERE state = 'running'`

func runSandbox(ctx context.Context, cfg SandboxConfig, pool *pgxpool.Pool, req opsapi.ReplayRequest, report *SandboxReport) error {
	if _, err := pool.Exec(ctx, sqlQuiet); err != nil {
		return fmt.Errorf("quiet the copy: %w", err)
	}
	settings, err := cfg.API.Flags.ConsumerConfig()
	if err != nil {
		return err
	}
	settings.ReplayApproval = 1 << 30 // nothing is at stake here
	// What a service would log here is about the copy, as that nobody may use its
	// ops API. The report says what became of each event.
	quiet := slog.New(slog.DiscardHandler)
	settings.Logger, cfg.API.Logger = quiet, quiet
	consumer, err := cfg.Consumer(pool, idle{}, settings)
	if err != nil {
		return err
	}
	cfg.API.Pool, cfg.API.Consumers = pool, []*messaging.Consumer{consumer}
	api, err := opsapi.New(cfg.API)
	if err != nil {
		return err
	}
	id, plan, err := api.Replay(ctx, req, messaging.Actor{Name: "sandbox", Reason: req.Reason})
	if err != nil {
		return err
	}
	report.Plan = plan
	report.Replay, err = untilDone(ctx, pool, consumer, id)
	return err
}

// untilDone runs the consumer until the replay is over.
func untilDone(ctx context.Context, pool *pgxpool.Pool, consumer *messaging.Consumer, id uuid.UUID) (replay messaging.Replay, err error) {
	replays := messaging.NewReplays(pool)
	if err := replays.Start(ctx, id, messaging.Actor{Name: "sandbox", Reason: "tried on a copy"}); err != nil {
		return replay, err
	}
	ctx, stop := context.WithTimeout(ctx, sandboxPatience)
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	for {
		if replay, err = replays.Show(ctx, id); err != nil || replay.State == "done" {
			return replay, err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// idle is a subscription on which nothing ever arrives.
type idle struct{}

func (idle) Subscribe(context.Context, messaging.Subscription) (messaging.Source, error) {
	return idle{}, nil
}

func (idle) Fetch(ctx context.Context, _ int) ([]messaging.Delivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (idle) Close() {}
