package points

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"

	"orderpaid/platform/auth"
	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// Config configures the service.
type Config struct {
	process.Service `kong:"set='http_addr=127.0.0.1:8081',set='ops_addr=127.0.0.1:9081'"`
	opsapi.Flags
	auth.Issuer
}

// Run serves requests and books events until ctx is done, then finishes what
// is under way.
func Run(ctx context.Context, cfg Config) error {
	guard, err := cfg.Guard()
	if err != nil {
		return err
	}
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
	operators, err := opsapi.OpenPool(ctx, "points", cfg.DatabaseURL) // its own, so that nobody is in the way of whoever mends things
	if err != nil {
		return err
	}
	defer operators.Close()
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
	settings, err := cfg.ConsumerConfig()
	if err != nil {
		return err
	}
	settings.TraceParent = cfg.TraceParentMode
	service := NewService(requests, outbox)
	consumer := newConsumer(consumers, broker, service, settings)
	ops, err := opsapi.New(opsapi.Config{
		Service: "points", Pool: operators, Flags: cfg.Flags, Consumers: []*messaging.Consumer{consumer}, Broker: broker,
		Own: NewService(operators, outbox).own(),
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
	return []messaging.Subscription{newConsumer(nil, nil, new(Service), messaging.ConsumerConfig{}).Subscription()}
}
