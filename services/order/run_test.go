package order

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"orderpaid/platform/leaktest"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestServiceRunsOnRealServersAndStopsCleanly(t *testing.T) {
	t.Parallel()
	pool, nats := pgtest.New(t, "order"), natstest.New(t)
	if err := natsbroker.EnsureTopology(t.Context(), nats.URL(), natsbroker.Topology{Subscriptions: Subscriptions()}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Service: process.Service{HTTPAddr: freeAddr(t), OpsAddr: freeAddr(t), NATSURL: process.Secret(nats.URL()),
			DatabaseURL: process.Secret(pool.Config().ConnString()), DatabaseConns: 4},
		WebhookSecrets: []process.Secret{process.Secret(secret(testKey))},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()
	eventually(t, "the service is ready", func() bool {
		resp, err := http.Get("http://" + cfg.OpsAddr + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})

	s := &shop{pool: pool, url: "http://" + cfg.HTTPAddr}
	o := s.paid(t)
	publish(t, nats.URL(), "pte_1", PointsAwarded{OrderID: o.OrderID, AwardedAt: o.PaidAt})
	eventually(t, "the points are done", func() bool {
		return followUp(t, s.get(t, o.OrderID), FollowUpPoints).State == FollowUpDone
	})

	stop()
	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want a clean stop", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the service did not stop within 20 s")
	}
}

func TestBadSettingsStopTheStart(t *testing.T) {
	t.Parallel()
	if err := Run(t.Context(), Config{}); err == nil {
		t.Error("no webhook secret: got no error")
	}
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "order"})
	if err != nil {
		t.Fatal(err)
	}
	for name, rule := range map[string]PointsRule{"unknown currency": {"XXX": 100}, "zero": {"CNY": 0}, "negative": {"JPY": -1}} {
		if _, err := NewService(nil, outbox, ServiceConfig{Rule: rule}); err == nil {
			t.Errorf("points rule, %s: got no error", name)
		}
	}
	if _, err := NewService(nil, outbox, ServiceConfig{Promises: Promises{Points: -time.Second}}); err == nil {
		t.Error("promise in the past: got no error")
	}
}

func publish(t *testing.T, url, aggregateID string, payload messaging.Payload) {
	t.Helper()
	broker, err := natsbroker.Connect(t.Context(), natsbroker.Config{URL: url, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	receipts := broker.Publish(t.Context(), []messaging.Message{{
		ID: uuid.Must(uuid.NewV7()), Key: aggregateID,
		Subject: payload.Kind().Subject(messaging.ShardOf(aggregateID)),
		Data:    messagingtest.Envelope(t, aggregateID, 1, payload),
	}})
	if err := receipts[0].Err; err != nil {
		t.Fatal(err)
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// eventually asks until it is true, for at most 30 seconds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline, ticks := time.After(30*time.Second), time.NewTicker(20*time.Millisecond)
	defer ticks.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("after 30 s it is still not true that %s", what)
		case <-ticks.C:
		}
	}
}
