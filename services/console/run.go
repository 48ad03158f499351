package console

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
	"orderpaid/platform/service"
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

	ReconcileEvery    time.Duration `name:"reconcile-every" env:"RECONCILE_EVERY" default:"0s" help:"How often this process compares everything with everything and exports what it finds as metrics; at most 10m. 0: never. Defaults to 0."`
	ReconcileWindow   time.Duration `name:"reconcile-window" env:"RECONCILE_WINDOW" default:"1h" help:"How far back each of these runs looks. Much longer than their distance, so that an event that is committed late is found by the next one. Defaults to 1h."`
	ReconcileInFlight time.Duration `name:"reconcile-in-flight" env:"RECONCILE_IN_FLIGHT" default:"1m" help:"How long an event may be on its way before these runs call it a difference. Defaults to 1m."`
	ReconcileSample   int           `name:"reconcile-sample" env:"RECONCILE_SAMPLE" default:"100" help:"The percentage of the orders that they look at, always the same ones. Defaults to 100."`

	TokenURL     process.Secret `name:"token-url" env:"TOKEN_URL" placeholder:"URL" help:"Where this service gets the token with which it acts for customers. Empty: the others ask for none."`
	PublicView   bool           `name:"public-view" env:"PUBLIC_VIEW" help:"Show Live and Why to who has not signed in. For demos."`
	DemoActors   process.Secret `name:"demo-actors" env:"DEMO_ACTORS" placeholder:"NAME:ROLE:TOKEN" help:"Whom visitors may act as with one click, separated by blanks. For demos: it hands the tokens out."`
	ControlURL   string         `name:"control-url" env:"CONTROL_URL" placeholder:"URL" help:"What breaks a demo on purpose. Empty: no such buttons."`
	ControlToken process.Secret `name:"control-token" env:"CONTROL_TOKEN" help:"The token for it."`
}

// Run keeps the trail and the board and serves the pages until ctx is done,
// then finishes what is under way.
func Run(ctx context.Context, cfg Config) error {
	base, err := service.Open(ctx, "console", cfg.Service, cfg.Flags)
	if err != nil {
		return err
	}
	defer base.Close()
	console, err := NewService(base.Requests, base.Broker, cfg)
	if err != nil {
		return err
	}
	consumer := messaging.NewConsumer(auditor, base.Consumers, base.Broker, base.Consuming)
	console.register(consumer)
	watchers, forget, err := console.watchers(base.Broker, cfg)
	if err != nil {
		return err
	}
	defer forget()
	ended := make(chan struct{})
	console.done = ended
	endStreams := func(ctx context.Context) error { // pages that are being updated would hold up the stop
		<-ctx.Done()
		close(ended)
		return nil
	}
	return base.Run(ctx, console.Handler(), consumer, opsapi.Own{EffectsOf: console.effectsOf}, append(watchers, endStreams)...)
}

// watchers returns what runs beside the pages, with its metrics exported until
// forget is called.
func (s *Service) watchers(broker *natsbroker.Broker, cfg Config) (run []func(context.Context) error, forget func(), err error) {
	export := []func(metric.MeterProvider) (metric.Registration, error){s.observeBoard, s.observeDesk}
	run = []func(context.Context) error{s.watchBoard, s.watchIndex, s.watchDesk}
	if cfg.ReconcileEvery != 0 {
		c, err := newComparer(broker, cfg)
		if err != nil {
			return nil, nil, err
		}
		export, run = append(export, c.observe), append(run, c.watch)
	}
	var exported []metric.Registration
	forget = func() {
		for _, r := range exported {
			_ = r.Unregister() // it never fails
		}
	}
	for _, begin := range export {
		r, err := begin(otel.GetMeterProvider())
		if err != nil {
			forget()
			return nil, nil, err
		}
		exported = append(exported, r)
	}
	return run, forget, nil
}

// Subscriptions returns what the service reads, for whoever owns the topology.
func Subscriptions() []messaging.Subscription {
	consumer := messaging.NewConsumer(auditor, nil, nil, messaging.ConsumerConfig{})
	new(Service).register(consumer)
	return []messaging.Subscription{consumer.Subscription()}
}
