package search

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"orderpaid/platform/auth"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/postgres"
	"orderpaid/platform/process"
	"orderpaid/platform/service"
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
	guard, err := cfg.Guard(cfg.HTTPAddr)
	if err != nil {
		return err
	}
	base, err := service.Open(ctx, "search", cfg.Service, cfg.Flags)
	if err != nil {
		return err
	}
	defer base.Close()
	if base.Consuming.Backfill, err = cfg.Backfill("order"); err != nil {
		return err
	}
	search := NewService(base.Requests)
	consumer := newConsumer(base.Consumers, base.Broker, search, base.Consuming)
	return base.Run(ctx, search.Handler(guard), consumer, NewService(base.Operators).own())
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
