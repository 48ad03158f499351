package console

import (
	"context"

	"go.opentelemetry.io/otel"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// Config configures the service. Its --ops-peer must name every service,
// itself included, and its --ops-peer-token is what it looks with: there it
// needs the role viewer.
type Config struct {
	process.Service `kong:"set='http_addr=127.0.0.1:8084',set='ops_addr=127.0.0.1:9084'"`
	opsapi.Flags

	OrderURL  string `name:"order-url" env:"ORDER_URL" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The order service. Defaults to http://127.0.0.1:8080."`
	PointsURL string `name:"points-url" env:"POINTS_URL" default:"http://127.0.0.1:8081" placeholder:"URL" help:"The points service. Defaults to http://127.0.0.1:8081."`
	NotifyURL string `name:"notify-url" env:"NOTIFY_URL" default:"http://127.0.0.1:8082" placeholder:"URL" help:"The notify service. Defaults to http://127.0.0.1:8082."`
	SearchURL string `name:"search-url" env:"SEARCH_URL" default:"http://127.0.0.1:8083" placeholder:"URL" help:"The search service. Defaults to http://127.0.0.1:8083."`
	SimURL    string `name:"sim-url" env:"SIM_URL" placeholder:"URL" help:"The payment provider and mail server of a demo. Empty: the shop's pages take no payments."`

	TokenURL     process.Secret `name:"token-url" env:"TOKEN_URL" placeholder:"URL" help:"Where this service gets the token with which it acts for customers. Empty: the others ask for none."`
	PublicView   bool           `name:"public-view" env:"PUBLIC_VIEW" help:"Show Live and Why to who has not signed in. For demos."`
	DemoActors   process.Secret `name:"demo-actors" env:"DEMO_ACTORS" placeholder:"NAME:ROLE:TOKEN" help:"Whom visitors may act as with one click, separated by blanks. For demos: it hands the tokens out."`
	ControlURL   string         `name:"control-url" env:"CONTROL_URL" placeholder:"URL" help:"What breaks a demo on purpose. Empty: no such buttons."`
	ControlToken process.Secret `name:"control-token" env:"CONTROL_TOKEN" help:"The token for it."`
}

// Run keeps the trail and the board and serves the pages until ctx is done,
// then finishes what is under way.
func Run(ctx context.Context, cfg Config) error {
	requests, err := cfg.OpenPool(ctx, "console http")
	if err != nil {
		return err
	}
	defer requests.Close()
	consumers, err := cfg.OpenPool(ctx, "console consumers") // its own, so that a backlog cannot starve readers
	if err != nil {
		return err
	}
	defer consumers.Close()
	operators, err := opsapi.OpenPool(ctx, "console", cfg.DatabaseURL) // its own, so that nobody is in the way of whoever mends things
	if err != nil {
		return err
	}
	defer operators.Close()
	if err := cfg.PrepareDatabase(ctx, "console", requests); err != nil {
		return err
	}
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(cfg.NATSURL), Name: "console"})
	if err != nil {
		return err
	}
	defer broker.Close()
	service, err := NewService(requests, broker, cfg)
	if err != nil {
		return err
	}
	consuming, err := cfg.ConsumerConfig()
	if err != nil {
		return err
	}
	consuming.TraceParent = cfg.TraceParentMode
	consumer := messaging.NewConsumer(auditor, consumers, broker, consuming)
	service.register(consumer)
	ops, err := opsapi.New(opsapi.Config{
		Service: "console", Pool: operators, Flags: cfg.Flags, Consumers: []*messaging.Consumer{consumer}, Broker: broker,
	})
	if err != nil {
		return err
	}
	ready := func(ctx context.Context) error {
		if err := requests.Ping(ctx); err != nil {
			return err
		}
		return broker.Ready(ctx)
	}

	observed, err := service.observeBoard(otel.GetMeterProvider())
	if err != nil {
		return err
	}
	defer func() { _ = observed.Unregister() }() // it never fails

	g, ctx := errgroup.WithContext(ctx)
	service.done = ctx.Done()
	g.Go(func() error { return consumer.Run(ctx) })
	g.Go(func() error { return service.watchBoard(ctx) })
	g.Go(func() error { return service.watchIndex(ctx) })
	g.Go(func() error { return httpserver.Run(ctx, cfg.HTTPAddr, service.Handler()) })
	g.Go(func() error { return httpserver.RunOps(ctx, cfg.OpsAddr, ready, ops.Mount) })
	g.Go(func() error { return ops.Run(ctx) })
	return g.Wait()
}

// Subscriptions returns what the service reads, for whoever owns the topology.
func Subscriptions() []messaging.Subscription {
	consumer := messaging.NewConsumer(auditor, nil, nil, messaging.ConsumerConfig{})
	new(Service).register(consumer)
	return []messaging.Subscription{consumer.Subscription()}
}
