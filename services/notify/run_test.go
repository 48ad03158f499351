package notify

import (
	"context"
	"testing"
	"time"

	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
	"orderpaid/platform/service/servicetest"
)

func TestAnEventOnTheStreamBecomesAMail(t *testing.T) {
	t.Parallel()
	pool, broker, server := pgtest.New(t, "notify"), natstest.New(t), startMailServer(t, "127.0.0.1:0")
	if err := natsbroker.EnsureTopology(t.Context(), broker.URL(), natsbroker.Topology{Subscriptions: Subscriptions()}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Service: process.Service{
			HTTPAddr: servicetest.FreeAddr(t), OpsAddr: servicetest.FreeAddr(t), DatabaseConns: 4,
			DatabaseURL: process.Secret(pool.Config().ConnString()), NATSURL: process.Secret(broker.URL()),
		},
		SMTPAddr: server.smtpAddr, MailFrom: "orders@shop.example", ContactDomain: "customers.example",
		SendTimeout: 15 * time.Second, SendConcurrency: 4, UnknownRepeats: 1,
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	stop := servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, cfg) })
	order := newOrder()
	servicetest.Publish(t, broker.URL(), OrderPaid{}.Kind(), paid(t, order, "u1"))
	servicetest.Eventually(t, "the mail arrives", func() bool { return len(server.mails(t, order)) == 1 })
	servicetest.AwaitReady(t, cfg.OpsAddr)
	stop()
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	good := Config{
		Service:     process.Service{HTTPAddr: "127.0.0.1:1", OpsAddr: "127.0.0.1:2", DatabaseURL: "postgres://localhost/x", DatabaseConns: 4},
		SendTimeout: time.Second, SendConcurrency: 1, ContactDomain: "customers.example",
	}
	if err := good.Validate(); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	for name, spoil := range map[string]func(*Config){
		"no time":             func(c *Config) { c.SendTimeout = 0 },
		"no concurrency":      func(c *Config) { c.SendConcurrency = 0 },
		"negative repeats":    func(c *Config) { c.UnknownRepeats = -1 },
		"domain with an @":    func(c *Config) { c.ContactDomain = "a@b" },
		"domain with a break": func(c *Config) { c.ContactDomain = "a.example\r\nBcc: b" },
		"no address":          func(c *Config) { c.HTTPAddr = "" },
	} {
		bad := good
		spoil(&bad)
		if bad.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
