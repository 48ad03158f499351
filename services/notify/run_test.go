package notify

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
)

func TestAnEventOnTheStreamBecomesAMail(t *testing.T) {
	t.Parallel()
	pool, broker, server := pgtest.New(t, "notify"), natstest.New(t), startMailServer(t, "127.0.0.1:0")
	if err := natsbroker.EnsureTopology(t.Context(), broker.URL(), natsbroker.Topology{Subscriptions: Subscriptions()}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Service: process.Service{
			HTTPAddr: freeAddr(t), OpsAddr: freeAddr(t), DatabaseConns: 4,
			DatabaseURL: process.Secret(pool.Config().ConnString()), NATSURL: process.Secret(broker.URL()),
		},
		SMTPAddr: server.smtpAddr, MailFrom: "orders@shop.example", ContactDomain: "customers.example",
		SendTimeout: 15 * time.Second, SendConcurrency: 4, UnknownRepeats: 1,
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()

	order := newOrder()
	publish(t, broker.URL(), paid(t, order, "u1"))
	eventually(t, func() bool { return len(server.mails(t, order)) == 1 }, func() string { return "the mail arrives" })
	resp, err := http.Get("http://" + cfg.OpsAddr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("readyz: got %d", resp.StatusCode)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
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

// publish puts an event on the stream, as a relay does.
func publish(t *testing.T, url string, event []byte) {
	t.Helper()
	publisher, err := natsbroker.Connect(t.Context(), natsbroker.Config{URL: url, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	var env messaging.Envelope
	if err := json.Unmarshal(event, &env); err != nil {
		t.Fatal(err)
	}
	shard := messaging.ShardOf(env.AggregateID)
	receipts := publisher.Publish(t.Context(), []messaging.Message{{
		ID: env.EventID, Key: env.AggregateID, Subject: OrderPaid{}.Kind().Subject(shard), Data: event,
	}})
	if receipts[0].Err != nil {
		t.Fatal(receipts[0].Err)
	}
}

// freeAddr returns an address nobody listens at.
func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
