package points

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"orderpaid/platform/leaktest"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestAnEventOnTheStreamBecomesABalance(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "points")
	broker := natstest.New(t)
	if err := natsbroker.EnsureTopology(t.Context(), broker.URL(), natsbroker.Topology{Subscriptions: Subscriptions()}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Service: process.Service{
		HTTPAddr: freeAddr(t), OpsAddr: freeAddr(t), DatabaseConns: 4,
		DatabaseURL: process.Secret(pool.Config().ConnString()), NATSURL: process.Secret(broker.URL()),
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()

	publish(t, broker.URL(), paid(t, newOrder(), "u1", 19))
	eventually(t, func() bool {
		resp, err := http.Get("http://" + cfg.HTTPAddr + "/v1/users/u1/points")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var got balanceView
		return json.NewDecoder(resp.Body).Decode(&got) == nil && got.Balance == 19
	})
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

// eventually polls until ok or for 30 seconds.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatal("it has not happened within 30 s")
		}
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
