package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/auth"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
	"orderpaid/platform/service"
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
	guard, err := cfg.Guard(cfg.HTTPAddr)
	if err != nil {
		return err
	}
	base, err := service.Open(ctx, "notify", cfg.Service, cfg.Flags)
	if err != nil {
		return err
	}
	defer base.Close()
	senders, err := cfg.OpenPool(ctx, "notify senders") // its own, so that a backlog cannot keep outcomes from being written
	if err != nil {
		return err
	}
	defer senders.Close()
	outbox, err := base.Outbox()
	if err != nil {
		return err
	}
	delivery, err := newDelivery(senders, outbox, cfg)
	if err != nil {
		return err
	}
	notify := NewService(base.Requests, delivery.Wake)
	consumer := newConsumer(base.Consumers, base.Broker, notify, base.Consuming)
	// It is ready without its mail server: mails wait then, and that is all.
	own := NewService(base.Operators, delivery.Wake).own()
	own.Doubts = delivery.doubts(base.Operators)
	return base.Run(ctx, notify.Handler(guard), consumer, own, delivery.Run)
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
