package search

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"orderpaid/platform/leaktest"
	"orderpaid/platform/process"
	"orderpaid/platform/service/servicetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// The whole service as cmd/search runs it, and a rebuild beside it.
func TestTheServiceIndexesServesAndIsRebuilt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dsn := process.Secret(s.pool.Config().ConnString())
	cfg := Config{Service: process.Service{
		HTTPAddr: servicetest.FreeAddr(t), OpsAddr: servicetest.FreeAddr(t), DatabaseURL: dsn, MigrateURL: dsn, DatabaseConns: 4, NATSURL: process.Secret(s.server.URL()),
	}}
	stop := servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, cfg) })
	order := newOrder()
	s.publish(t, life(t, order, 2)...)
	s.await(t, 2)
	rebuild := cfg
	rebuild.Rebuild = true
	if err := Run(t.Context(), rebuild); err != nil {
		t.Fatal(err)
	}
	s.publish(t, life(t, newOrder(), 1)...)
	s.await(t, 3)

	var answer searchAnswer
	requireJSON(t, "http://"+cfg.HTTPAddr+"/v1/orders/search?q=%E8%83%8C%E5%8C%85", &answer)
	if len(answer.Orders) != 2 || answer.Orders[1].OrderID != order && answer.Orders[0].OrderID != order {
		t.Errorf("found %+v", answer.Orders)
	}
	servicetest.AwaitReady(t, cfg.OpsAddr)
	stop()
}

func requireJSON(t *testing.T, url string, v any) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", url, r.Status)
	}
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		t.Fatal(err)
	}
}
