package search

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"orderpaid/platform/auth"
	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/postgres"
	"orderpaid/platform/process"
)

// Config configures the service.
type Config struct {
	process.Service `kong:"set='http_addr=127.0.0.1:8083',set='ops_addr=127.0.0.1:9083'"`
	opsapi.Flags
	auth.Issuer

	Rebuild bool `env:"-" help:"Rebuild the index from the stream, beside the running service, and exit. Orders whose events the stream no longer holds keep their documents. If it fails, the old index stays."`
}

// Run serves requests and follows the orders' events until ctx is done, then
// finishes what is under way. With cfg.Rebuild it makes the index anew instead
// and returns.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Rebuild {
		return runRebuild(ctx, cfg)
	}
	guard, err := cfg.Guard()
	if err != nil {
		return err
	}
	requests, err := cfg.OpenPool(ctx, "search http")
	if err != nil {
		return err
	}
	defer requests.Close()
	consumers, err := cfg.OpenPool(ctx, "search consumers") // its own, so that a backlog cannot starve readers
	if err != nil {
		return err
	}
	defer consumers.Close()
	operators, err := opsapi.OpenPool(ctx, "search", cfg.DatabaseURL) // its own, so that nobody is in the way of whoever mends things
	if err != nil {
		return err
	}
	defer operators.Close()
	if err := cfg.PrepareDatabase(ctx, "search", requests); err != nil {
		return err
	}
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(cfg.NATSURL), Name: "search"})
	if err != nil {
		return err
	}
	defer broker.Close()
	service := NewService(requests)
	settings, err := cfg.ConsumerConfig()
	if err != nil {
		return err
	}
	settings.TraceParent = cfg.TraceParentMode
	if settings.Backfill, err = cfg.Backfill("order"); err != nil {
		return err
	}
	consumer := newConsumer(consumers, broker, service, settings)
	ops, err := opsapi.New(opsapi.Config{
		Service: "search", Pool: operators, Flags: cfg.Flags, Consumers: []*messaging.Consumer{consumer}, Broker: broker,
		Own: NewService(operators).own(),
	})
	if err != nil {
		return err
	}
	ready := func(ctx context.Context) error {
		if err := requests.Ping(ctx); err != nil {
			return err
		}
		if err := consumer.Ready(); err != nil {
			return err
		}
		return broker.Ready(ctx)
	}
	return serve(ctx, cfg, service.Handler(guard), ready, consumer, ops)
}

// serve runs everything that lives as long as the service, and waits for all
// of it.
func serve(ctx context.Context, cfg Config, h http.Handler, ready func(context.Context) error, consumer *messaging.Consumer, ops *opsapi.API) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return consumer.Run(ctx) })
	g.Go(func() error { return httpserver.Run(ctx, cfg.HTTPAddr, h) })
	g.Go(func() error { return httpserver.RunOps(ctx, cfg.OpsAddr, ready, ops.Mount) })
	g.Go(func() error { return ops.Run(ctx) })
	return g.Wait()
}

// Subscriptions returns what the service reads, for whoever owns the topology.
func Subscriptions() []messaging.Subscription {
	return []messaging.Subscription{newConsumer(nil, nil, NewService(nil), messaging.ConsumerConfig{}).Subscription()}
}

// runRebuild is safe beside any number of running replicas.
func runRebuild(ctx context.Context, cfg Config) error {
	pool, err := postgres.Open(ctx, string(cfg.DatabaseURL), postgres.Config{
		MaxConns: cfg.DatabaseConns, ApplicationName: "search rebuild",
		StatementTimeout: 10 * time.Minute, // the switch handles every event of the index in one statement
	})
	if err != nil {
		return fmt.Errorf("%w; check that PostgreSQL runs and that --database-url is right", err)
	}
	defer pool.Close()
	if err := cfg.PrepareDatabase(ctx, "search", pool); err != nil {
		return err
	}
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(cfg.NATSURL), Name: "search-rebuild"})
	if err != nil {
		return err
	}
	defer broker.Close()
	r := NewRebuild(pool, broker)
	if err := r.Run(ctx); err != nil {
		return fmt.Errorf("rebuild the index: %w; the old one is still in use", err)
	}
	slog.InfoContext(ctx, "the rebuilt index is live", "events", r.Events, "carried", r.Carried, "failed", r.Failed)
	return nil
}
