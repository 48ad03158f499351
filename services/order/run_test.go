package order

import (
	"context"
	"testing"
	"time"

	"orderpaid/platform/leaktest"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
	"orderpaid/platform/service/servicetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestServiceRunsOnRealServersAndStopsCleanly(t *testing.T) {
	t.Parallel()
	pool, nats := pgtest.New(t, "order"), natstest.New(t)
	if err := natsbroker.EnsureTopology(t.Context(), nats.URL(), natsbroker.Topology{Subscriptions: Subscriptions()}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Service: process.Service{HTTPAddr: servicetest.FreeAddr(t), OpsAddr: servicetest.FreeAddr(t), NATSURL: process.Secret(nats.URL()),
			DatabaseURL: process.Secret(pool.Config().ConnString()), DatabaseConns: 4},
		WebhookSecrets: []process.Secret{process.Secret(secret(testKey))},
	}
	stop := servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, cfg) })
	servicetest.AwaitReady(t, cfg.OpsAddr)

	s := &shop{pool: pool, url: "http://" + cfg.HTTPAddr}
	o := s.paid(t)
	awarded := PointsAwarded{OrderID: o.OrderID, AwardedAt: o.PaidAt}
	servicetest.Publish(t, nats.URL(), awarded.Kind(), messagingtest.Envelope(t, "pte_1", 1, awarded))
	servicetest.Eventually(t, "the points are done", func() bool {
		return followUp(t, s.get(t, o.OrderID), FollowUpPoints).State == FollowUpDone
	})
	stop()
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
