package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"orderpaid/migrations"
	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/postgres"
	"orderpaid/platform/process"
)

type config struct {
	Databases       map[string]process.Secret `name:"database" env:"RELAY_DATABASES" mapsep:" " required:"" placeholder:"NAME=URL" help:"An outbox to relay, under the name that its service is known by. Repeat it, or separate several with spaces. The role needs no more than the outbox and the relays' leases."`
	NATSURL         process.Secret            `name:"nats-url" env:"NATS_URL" default:"nats://127.0.0.1:4222" placeholder:"URL" help:"The broker. Defaults to nats://127.0.0.1:4222."`
	OpsAddr         string                    `name:"ops-addr" env:"OPS_ADDR" default:"127.0.0.1:9080" placeholder:"HOST:PORT" help:"Where /livez, /readyz and /metrics listen; keep it private. Defaults to 127.0.0.1:9080."`
	Lease           time.Duration             `name:"lease" env:"RELAY_LEASE" default:"10s" help:"How long the shards of a relay that died stay with it. Defaults to 10s; within 1s and 2m."`
	TraceParentMode string                    `name:"trace-parent-mode" env:"TRACE_PARENT_MODE" enum:"link,child" default:"link" help:"How the publishing of events refers to the traces that created them: link or child, as for the services. Defaults to link."`
	Publish         string                    `name:"publish" env:"RELAY_PUBLISH" enum:"batches,single" default:"batches" help:"How events go to the broker: in batches, each with one sync, or single, which is faster where the broker syncs lazily and ten times slower where it always does. Defaults to batches."`
	Batch           int                       `name:"batch" env:"RELAY_BATCH" default:"1000" help:"Most events in one batch. Defaults to 1000, which is what JetStream takes."`
}

// Validate finds, before anything is opened, what could not work.
func (c config) Validate() error {
	if _, _, err := net.SplitHostPort(c.OpsAddr); err != nil {
		return fmt.Errorf("--ops-addr: %q is not host:port", c.OpsAddr)
	}
	for name, url := range c.Databases {
		if _, err := pgxpool.ParseConfig(string(url)); err != nil || url == "" {
			return fmt.Errorf("--database %s: not a PostgreSQL address like postgres://user:password@host:5432/database", name)
		}
	}
	return nil
}

// relayConns is what one relay needs for each database: no statement of its
// lanes, its leases or the readiness check takes longer than a batch does.
const relayConns = 2

// collectLess makes the runtime collect garbage a quarter as often as it would:
// of the four kilobytes that an event passes through almost nothing stays, and
// at the default a drain collects after each thousand events, for a tenth of
// the relay's processor time. Whoever sets GOGC or GOMEMLIMIT knows better.
func collectLess(databases int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit(databases))
	}
}

// memoryLimit is what may be in use before the runtime collects more often
// after all. It lies above everything that can be alive at one time: below
// that, with large events, the collector would take half of the processor and
// free nothing. Each database's four lanes hold a batch of 8 MiB at most, as it
// was read, as it is sent, and in the broker's buffers.
func memoryLimit(databases int) int64 {
	const rest, lanes, copies, batch = 64 << 20, 4, 3, 8 << 20
	return rest + int64(databases)*lanes*copies*batch
}

// run relays every database until ctx is done and all batches on the way have
// been finished.
func run(ctx context.Context, cfg config) error {
	collectLess(len(cfg.Databases))
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(cfg.NATSURL), Name: "relay", Single: cfg.Publish == "single"})
	if err != nil {
		return fmt.Errorf("%w; check that the broker runs and that --nats-url is right", err)
	}
	defer broker.Close()

	var pools []*pgxpool.Pool
	var relays []*messaging.Relay
	for _, name := range slices.Sorted(maps.Keys(cfg.Databases)) {
		pool, err := postgres.Open(ctx, string(cfg.Databases[name]), postgres.Config{MaxConns: relayConns, ApplicationName: "relay " + name, Lazy: true})
		if err != nil {
			return fmt.Errorf("%w; check --database %s", err, name)
		}
		defer pool.Close()
		wake, stopWaking, err := broker.OnWake(name)
		if err != nil {
			return fmt.Errorf("listen for wake-ups of %s: %w", name, err)
		}
		defer stopWaking()
		relay, err := messaging.NewRelay(pool, broker, messaging.RelayConfig{Database: name, Lease: cfg.Lease, Batch: cfg.Batch, Wake: wake, TraceParent: cfg.TraceParentMode})
		if err != nil {
			return err
		}
		pools, relays = append(pools, pool), append(relays, relay)
	}

	g, ctx := errgroup.WithContext(ctx)
	for i, relay := range relays {
		g.Go(func() error {
			if err := awaitDatabase(ctx, pools[i]); err != nil || ctx.Err() != nil {
				return err
			}
			return relay.Run(ctx)
		})
	}
	g.Go(func() error { return httpserver.RunOps(ctx, cfg.OpsAddr, readiness(broker, pools)) })
	return g.Wait()
}

// awaitDatabase returns when the database answers and has the outbox. While
// one is away the others are relayed; readiness names it. A database that
// answers and has no outbox is a mistake that waiting does not mend.
func awaitDatabase(ctx context.Context, pool *pgxpool.Pool) error {
	var told time.Time
	for {
		err := postgres.CheckMigrated(ctx, pool, migrations.Messaging)
		if err == nil || ctx.Err() != nil || postgres.Classify(err) != postgres.Transient {
			return err
		}
		if time.Since(told) >= time.Minute {
			told = time.Now()
			slog.WarnContext(ctx, "a database does not answer; its events wait", "database", pool.Config().ConnConfig.Database, "code", postgres.Code(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// readiness asks for everything that a relay cannot work without.
func readiness(broker *natsbroker.Broker, pools []*pgxpool.Pool) []httpserver.Check {
	checks := []httpserver.Check{{Name: "broker", Ask: broker.Ready}}
	for _, pool := range pools {
		checks = append(checks, httpserver.Check{Name: "database " + pool.Config().ConnConfig.Database, Ask: pool.Ping})
	}
	return checks
}
