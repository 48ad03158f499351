package natsbroker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

var (
	orderPaid   = messaging.Kind{Context: "order", Type: "OrderPaid", Version: 1, Aggregate: "order"}
	pointsGiven = messaging.Subscription{Durable: "points-awarder", Kinds: []messaging.Kind{orderPaid}}
)

func connect(t *testing.T, s *natstest.Server, cfg natsbroker.Config) *natsbroker.Broker {
	t.Helper()
	cfg.URL = s.URL()
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	b, err := natsbroker.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestSmoke(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ctx := t.Context()
	top := natsbroker.Topology{Subscriptions: []messaging.Subscription{pointsGiven}}
	for range 2 {
		if err := natsbroker.EnsureTopology(ctx, s.URL(), top); err != nil {
			t.Fatal(err)
		}
	}
	b := connect(t, s, natsbroker.Config{})
	var ms []messaging.Message
	for i := range 2500 {
		id, _ := uuid.NewV7()
		ms = append(ms, messaging.Message{ID: id, Key: fmt.Sprint("order/", i%100), Subject: orderPaid.Subject(i % 64), Data: []byte(`{}`)})
	}
	start := time.Now()
	for i, r := range b.Publish(ctx, ms) {
		if r.Err != nil || r.Sequence != uint64(i+1) {
			t.Fatal(i, r)
		}
	}
	t.Log("batch", time.Since(start))
	start = time.Now()
	for i, r := range b.Publish(ctx, ms) {
		if r.Err != nil || r.Sequence != uint64(i+1) || !r.Duplicate {
			t.Fatal(i, r)
		}
	}
	t.Log("duplicates", time.Since(start))
	src, err := b.Subscribe(ctx, pointsGiven)
	if err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	n := 0
	for n < len(ms) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		g, err := src.Fetch(ctx, 1000)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		t.Log(len(g), time.Since(start))
		n += len(g)
		for _, d := range g {
			d.Ack()
		}
	}
	top.MaxAckPending = 4000
	t.Log(natsbroker.EnsureTopology(ctx, s.URL(), top))
	top.Update = true
	t.Log(natsbroker.EnsureTopology(ctx, s.URL(), top))
	top.Update = false
	t.Log(natsbroker.EnsureTopology(ctx, s.URL(), top))
}
