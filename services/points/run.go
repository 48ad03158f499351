package points

import (
	"context"

	"orderpaid/platform/auth"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
	"orderpaid/platform/service"
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
	guard, err := cfg.Guard(cfg.HTTPAddr)
	if err != nil {
		return err
	}
	base, err := service.Open(ctx, "points", cfg.Service, cfg.Flags)
	if err != nil {
		return err
	}
	defer base.Close()
	outbox, err := base.Outbox()
	if err != nil {
		return err
	}
	points := NewService(base.Requests, outbox)
	consumer := newConsumer(base.Consumers, base.Broker, points, base.Consuming)
	return base.Run(ctx, points.Handler(guard), consumer, NewService(base.Operators, outbox).own())
}

// Subscriptions returns what the service reads, for whoever owns the topology.
func Subscriptions() []messaging.Subscription {
	return []messaging.Subscription{newConsumer(nil, nil, new(Service), messaging.ConsumerConfig{}).Subscription()}
}
