// Package service opens what every service needs at its start, and runs what
// every service runs until it stops. What is a service's own (its handlers,
// its consumer, its tables) stays in its run.go:
//
//	base, err := service.Open(ctx, "points", cfg.Service, cfg.Flags)
//	if err != nil {
//		return err
//	}
//	defer base.Close()
//	… NewService(base.Requests, outbox), newConsumer(base.Consumers, base.Broker, …, base.Consuming) …
//	return base.Run(ctx, handler, consumer, own)
package service

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// A Base is an open database, an open connection to the broker, and the
// settings that come with them.
//
// The pools are separate so that a backlog of events cannot keep customers
// waiting, and neither can be in the way of whoever mends things.
type Base struct {
	Requests  *pgxpool.Pool            // for the API
	Consumers *pgxpool.Pool            // for the consumer
	Operators *pgxpool.Pool            // for the ops API
	Broker    *natsbroker.Broker       // publishes nothing but hints and replays; relays publish
	Consuming messaging.ConsumerConfig // what the operator's flags say about consumers

	name  string
	cfg   process.Service
	flags opsapi.Flags
}

// Open connects the service of that name to its database, which it migrates or
// verifies, and to the broker. The caller must call Close.
func Open(ctx context.Context, name string, cfg process.Service, flags opsapi.Flags) (_ *Base, err error) {
	b := &Base{name: name, cfg: cfg, flags: flags}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if b.Consuming, err = flags.ConsumerConfig(); err != nil {
		return nil, err
	}
	b.Consuming.TraceParent = cfg.TraceParentMode
	if b.Requests, err = cfg.OpenPool(ctx, name+" http"); err != nil {
		return nil, err
	}
	if b.Consumers, err = cfg.OpenPool(ctx, name+" consumers"); err != nil {
		return nil, err
	}
	if b.Operators, err = opsapi.OpenPool(ctx, name, cfg.DatabaseURL); err != nil {
		return nil, err
	}
	if err := cfg.PrepareDatabase(ctx, name, b.Requests); err != nil {
		return nil, err
	}
	if b.Broker, err = natsbroker.Connect(ctx, natsbroker.Config{URL: string(cfg.NATSURL), Name: name}); err != nil {
		return nil, err
	}
	return b, nil
}

// Close ends what Open opened.
func (b *Base) Close() {
	if b.Broker != nil {
		b.Broker.Close()
	}
	for _, pool := range []*pgxpool.Pool{b.Operators, b.Consumers, b.Requests} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Outbox returns the outbox of the service's events, which hints to the relays.
func (b *Base) Outbox() (*messaging.Outbox, error) {
	return messaging.NewOutbox(messaging.OutboxConfig{Producer: b.name, Wake: b.Broker.Wake(b.name)})
}

// Run runs the API, the consumer, the ops API and more until ctx is done or one
// of them fails, and waits for all of them. own is what the ops API shows of
// the service's tables.
//
// The service is ready with its database, its durable and the broker. Whoever
// sends customers to it asks without the last two: they are served while the
// broker is away, and what they do waits in the outbox.
func (b *Base) Run(ctx context.Context, api http.Handler, consumer *messaging.Consumer, own opsapi.Own, more ...func(context.Context) error) error {
	ops, err := opsapi.New(opsapi.Config{
		Service: b.name, Pool: b.Operators, Flags: b.flags, Consumers: []*messaging.Consumer{consumer}, Broker: b.Broker, Own: own,
	})
	if err != nil {
		return err
	}
	needs := []httpserver.Check{ // a real query, a live durable, a real answer of the broker
		{Name: "database", Ask: b.Requests.Ping},
		{Name: "durable", Ask: func(context.Context) error { return consumer.Ready() }},
		{Name: "broker", Ask: b.Broker.Ready},
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range append(more, consumer.Run, ops.Run) {
		g.Go(func() error { return run(ctx) })
	}
	g.Go(func() error { return httpserver.Run(ctx, b.cfg.HTTPAddr, api) })
	g.Go(func() error { return httpserver.RunOps(ctx, b.cfg.OpsAddr, needs, ops.Mount) })
	return g.Wait()
}
