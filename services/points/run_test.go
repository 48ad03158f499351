package points

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"orderpaid/platform/leaktest"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
	"orderpaid/platform/service/servicetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestAnEventOnTheStreamBecomesABalance(t *testing.T) {
	t.Parallel()
	pool, broker := pgtest.New(t, "points"), natstest.New(t)
	if err := natsbroker.EnsureTopology(t.Context(), broker.URL(), natsbroker.Topology{Subscriptions: Subscriptions()}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Service: process.Service{
		HTTPAddr: servicetest.FreeAddr(t), OpsAddr: servicetest.FreeAddr(t), DatabaseConns: 4,
		DatabaseURL: process.Secret(pool.Config().ConnString()), NATSURL: process.Secret(broker.URL()),
	}}
	stop := servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, cfg) })
	servicetest.Publish(t, broker.URL(), OrderPaid{}.Kind(), paid(t, newOrder(), "u1", 19))
	servicetest.Eventually(t, "the points are booked", func() bool {
		resp, err := http.Get("http://" + cfg.HTTPAddr + "/v1/users/u1/points")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var got balanceView
		return json.NewDecoder(resp.Body).Decode(&got) == nil && got.Balance == 19
	})
	servicetest.AwaitReady(t, cfg.OpsAddr)
	stop()
}
