package order

import (
	"context"
	"time"

	"orderpaid/platform/auth"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
	"orderpaid/platform/service"
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
	guard, err := cfg.Guard(cfg.HTTPAddr)
	if err != nil {
		return err
	}
	base, err := service.Open(ctx, "order", cfg.Service, cfg.Flags)
	if err != nil {
		return err
	}
	defer base.Close()
	outbox, err := base.Outbox()
	if err != nil {
		return err
	}
	orders, err := NewService(base.Requests, outbox, ServiceConfig{
		Rule: cfg.PointsPer, Promises: Promises{cfg.PointsWithin, cfg.NotificationWithin},
	})
	if err != nil {
		return err
	}
	consumer := newConsumer(base.Consumers, base.Broker, orders, base.Consuming)
	return base.Run(ctx, orders.Handler(verifier, guard), consumer, (&Service{pool: base.Operators}).own())
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
