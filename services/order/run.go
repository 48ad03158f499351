package order

import (
	"context"
	"net/http"
	"time"

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
	process.Service `kong:"set='http_addr=127.0.0.1:8080',set='ops_addr=127.0.0.1:9080'"`
	opsapi.Flags
	auth.Issuer

	WebhookSecrets []process.Secret `name:"webhook-secrets" env:"WEBHOOK_SECRETS" required:"" placeholder:"WHSEC,..." help:"The secrets with which the payment provider may sign, whsec_ and base64 each. Several while they are rotated."`

	PointsPer map[string]int64 `name:"points-per" env:"POINTS_PER" placeholder:"CUR=N;..." help:"Minor units that earn one point, by currency. Defaults to JPY=100; a currency that is not named earns one point for each whole major unit."`

	PointsWithin       time.Duration `name:"points-within" env:"POINTS_WITHIN" default:"30s" help:"How soon after the payment the customer is promised the points. Defaults to 30s."`
	NotificationWithin time.Duration `name:"notification-within" env:"NOTIFICATION_WITHIN" default:"60s" help:"How soon after the payment the customer is promised the mail. Defaults to 60s."`
}

// Run serves requests and books what other services report until ctx is done,
// then finishes what is under way.
func Run(ctx context.Context, cfg Config) error {
	verifier, err := newVerifier(cfg)
	if err != nil {
		return err
	}
	guard, err := cfg.Guard()
	if err != nil {
		return err
	}
	requests, err := cfg.OpenPool(ctx, "order http")
	if err != nil {
		return err
	}
	defer requests.Close()
	consumers, err := cfg.OpenPool(ctx, "order consumers") // its own, so that a backlog cannot keep customers waiting
	if err != nil {
		return err
	}
	defer consumers.Close()
	operators, err := opsapi.OpenPool(ctx, "order", cfg.DatabaseURL) // its own, so that nobody is in the way of whoever mends things
	if err != nil {
		return err
	}
	defer operators.Close()
	if err := cfg.PrepareDatabase(ctx, "order", requests); err != nil {
		return err
	}
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(cfg.NATSURL), Name: "order"})
	if err != nil {
		return err
	}
	defer broker.Close()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order", Wake: broker.Wake("order")})
	if err != nil {
		return err
	}
	service, err := NewService(requests, outbox, ServiceConfig{
		Rule: cfg.PointsPer, Promises: Promises{cfg.PointsWithin, cfg.NotificationWithin},
	})
	if err != nil {
		return err
	}
	settings, err := cfg.ConsumerConfig()
	if err != nil {
		return err
	}
	settings.TraceParent = cfg.TraceParentMode
	consumer := newConsumer(consumers, broker, service, settings)
	ops, err := opsapi.New(opsapi.Config{
		Service: "order", Pool: operators, Flags: cfg.Flags, Consumers: []*messaging.Consumer{consumer}, Broker: broker,
		Own: (&Service{pool: operators}).own(),
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
	return serve(ctx, cfg, service.Handler(verifier, guard), ready, consumer, ops)
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

func newVerifier(cfg Config) (*Verifier, error) {
	secrets := make([]string, len(cfg.WebhookSecrets))
	for i, secret := range cfg.WebhookSecrets {
		secrets[i] = string(secret)
	}
	return NewVerifier(secrets)
}

// Subscriptions returns what the service reads, for whoever owns the topology.
func Subscriptions() []messaging.Subscription {
	return []messaging.Subscription{newConsumer(nil, nil, new(Service), messaging.ConsumerConfig{}).Subscription()}
}
