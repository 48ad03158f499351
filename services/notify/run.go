package notify

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
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
	process.Service `kong:"set='http_addr=127.0.0.1:8082',set='ops_addr=127.0.0.1:9082'"`
	opsapi.Flags
	auth.Issuer

	SMTPAddr     string         `name:"smtp-addr" env:"SMTP_ADDR" default:"127.0.0.1:2525" placeholder:"HOST:PORT" help:"The mail server. Defaults to 127.0.0.1:2525."`
	SMTPTLS      TLSMode        `name:"smtp-tls" env:"SMTP_TLS" enum:"offered,starttls,tls,none" default:"offered" help:"Encryption on the way to it: offered (if it has it), starttls (or no mail), tls (from the first byte) or none. Defaults to offered."`
	SMTPUser     string         `name:"smtp-user" env:"SMTP_USER" help:"Name to log in with. Empty: no login."`
	SMTPPassword process.Secret `name:"smtp-password" env:"SMTP_PASSWORD" help:"Password to log in with. It is never sent in the clear."`

	MailFrom        string        `name:"mail-from" env:"MAIL_FROM" default:"orders@shop.example" help:"The sender's address; its domain is that of the Message-IDs. Defaults to orders@shop.example."`
	ContactDomain   string        `name:"contact-domain" env:"CONTACT_DOMAIN" help:"For demonstrations: users without a contact get mail at <user id>@ this domain. Empty: they get none."`
	SendTimeout     time.Duration `name:"send-timeout" env:"SEND_TIMEOUT" default:"15s" help:"How long one mail may take. The shorter, the more mails end without an answer. Defaults to 15s."`
	SendConcurrency int           `name:"send-concurrency" env:"SEND_CONCURRENCY" default:"8" help:"How many mails are on their way at the same time. Defaults to 8."`
	UnknownRepeats  int           `name:"unknown-repeats" env:"UNKNOWN_REPEATS" default:"1" help:"How often a mail is sent again that may have been delivered, with the same Message-ID. 0 prefers no mail to two. Defaults to 1."`
}

// Validate finds, before anything is opened, what could not work.
func (c Config) Validate() error {
	switch {
	case c.SendTimeout < time.Second:
		return fmt.Errorf("--send-timeout: %s is too short for any mail server, at least 1s", c.SendTimeout)
	case c.SendConcurrency < 1:
		return fmt.Errorf("--send-concurrency: %d, must be at least 1", c.SendConcurrency)
	case c.UnknownRepeats < 0:
		return fmt.Errorf("--unknown-repeats: %d, must not be negative", c.UnknownRepeats)
	case c.ContactDomain != "" && (Contact{Email: "x@" + c.ContactDomain, Locale: English}).check() != nil:
		return fmt.Errorf("--contact-domain: %q is not a domain", c.ContactDomain)
	}
	return c.Service.Validate()
}

// Run serves requests, queues mails and sends them until ctx is done, then
// finishes what is under way.
func Run(ctx context.Context, cfg Config) error {
	guard, err := cfg.Guard()
	if err != nil {
		return err
	}
	requests, err := cfg.OpenPool(ctx, "notify http")
	if err != nil {
		return err
	}
	defer requests.Close()
	consumers, err := cfg.OpenPool(ctx, "notify consumers") // its own, so that a backlog cannot starve readers
	if err != nil {
		return err
	}
	defer consumers.Close()
	senders, err := cfg.OpenPool(ctx, "notify senders") // its own, so that a backlog cannot keep outcomes from being written
	if err != nil {
		return err
	}
	defer senders.Close()
	operators, err := opsapi.OpenPool(ctx, "notify", cfg.DatabaseURL) // its own, so that nobody is in the way of whoever mends things
	if err != nil {
		return err
	}
	defer operators.Close()
	if err := cfg.PrepareDatabase(ctx, "notify", requests); err != nil {
		return err
	}
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(cfg.NATSURL), Name: "notify"})
	if err != nil {
		return err
	}
	defer broker.Close()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "notify", Wake: broker.Wake("notify")})
	if err != nil {
		return err
	}
	delivery, err := newDelivery(senders, outbox, cfg)
	if err != nil {
		return err
	}
	service := NewService(requests, delivery.Wake)
	settings, err := cfg.ConsumerConfig()
	if err != nil {
		return err
	}
	settings.TraceParent = cfg.TraceParentMode
	consumer := newConsumer(consumers, broker, service, settings)
	ops, err := opsapi.New(opsapi.Config{
		Service: "notify", Pool: operators, Flags: cfg.Flags, Consumers: []*messaging.Consumer{consumer}, Broker: broker,
		Own: NewService(operators, delivery.Wake).own(),
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
		return broker.Ready(ctx) // not the mail server: without it mails wait, and that is all
	}
	return serve(ctx, cfg, service.Handler(guard), ready, consumer, delivery, ops)
}

// serve runs everything that lives as long as the service, and waits for all
// of it.
func serve(ctx context.Context, cfg Config, h http.Handler, ready func(context.Context) error, consumer *messaging.Consumer, delivery *Delivery, ops *opsapi.API) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return consumer.Run(ctx) })
	g.Go(func() error { return delivery.Run(ctx) })
	g.Go(func() error { return httpserver.Run(ctx, cfg.HTTPAddr, h) })
	g.Go(func() error { return httpserver.RunOps(ctx, cfg.OpsAddr, ready, ops.Mount) })
	g.Go(func() error { return ops.Run(ctx) })
	return g.Wait()
}

func newDelivery(pool *pgxpool.Pool, outbox *messaging.Outbox, cfg Config) (*Delivery, error) {
	mailer, err := NewMailer(MailerConfig{
		Addr: cfg.SMTPAddr, TLS: cfg.SMTPTLS, Username: cfg.SMTPUser, Password: string(cfg.SMTPPassword),
		Timeout: cfg.SendTimeout, Idle: cfg.SendConcurrency,
	})
	if err != nil {
		return nil, err
	}
	return NewDelivery(pool, outbox, mailer, DeliveryConfig{
		From: cfg.MailFrom, ContactDomain: cfg.ContactDomain, Concurrency: cfg.SendConcurrency,
		Policy: Policy{UnknownRepeats: cfg.UnknownRepeats}, Lease: cfg.SendTimeout + leaseMargin, TraceParent: cfg.TraceParentMode,
	})
}

// Subscriptions returns what the service reads, for whoever owns the topology.
func Subscriptions() []messaging.Subscription {
	return []messaging.Subscription{newConsumer(nil, nil, new(Service), messaging.ConsumerConfig{}).Subscription()}
}
