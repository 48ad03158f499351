package points

import (
	"context"

	"golang.org/x/sync/errgroup"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/process"
)

// Config configures the service.
type Config struct {
	process.Service `kong:"set='http_addr=127.0.0.1:8081',set='ops_addr=127.0.0.1:9081'"`
}

// Run serves requests and books events until ctx is done, then finishes what
// is under way.
func Run(ctx context.Context, cfg Config) error {
	requests, err := cfg.OpenPool(ctx, "points http")
	if err != nil {
		return err
	}
	defer requests.Close()
	consumers, err := cfg.OpenPool(ctx, "points consumers") // its own, so that a backlog cannot starve readers
	if err != nil {
		return err
	}
	defer consumers.Close()
	if err := cfg.PrepareDatabase(ctx, "points", requests); err != nil {
		return err
	}
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(cfg.NATSURL), Name: "points"})
	if err != nil {
		return err
	}
	defer broker.Close()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "points", Wake: broker.Wake("points")})
	if err != nil {
		return err
	}
	service := NewService(requests, outbox)
	consumer := messaging.NewConsumer(awarder, consumers, broker, messaging.ConsumerConfig{})
	service.register(consumer)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return consumer.Run(ctx) })
	g.Go(func() error { return httpserver.Run(ctx, cfg.HTTPAddr, service.Handler()) })
	g.Go(func() error {
		return httpserver.RunOps(ctx, cfg.OpsAddr, func(ctx context.Context) error {
			if err := requests.Ping(ctx); err != nil {
				return err
			}
			return broker.Ready(ctx)
		})
	})
	return g.Wait()
}

// Subscriptions returns what the service reads, for whoever owns the topology.
func Subscriptions() []messaging.Subscription {
	consumer := messaging.NewConsumer(awarder, nil, nil, messaging.ConsumerConfig{})
	new(Service).register(consumer)
	return []messaging.Subscription{consumer.Subscription()}
}
