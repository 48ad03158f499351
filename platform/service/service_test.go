package service_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/leaktest"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
	"orderpaid/platform/service"
	"orderpaid/platform/service/servicetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// noted is the one event that the service of these tests consumes.
type noted struct{}

func (noted) Kind() messaging.Kind {
	return messaging.Kind{Context: "order", Type: "Noted", Version: 1, Aggregate: "order"}
}

var topology = natsbroker.Topology{Subscriptions: []messaging.Subscription{{Durable: "points-noter", Kinds: []messaging.Kind{noted{}.Kind()}}}}

// A probe is a service that does nothing, under the name of one that has a schema.
type probe struct {
	cfg  process.Service
	pool *pgxpool.Pool
	nats *natstest.Server
}

func newProbe(t *testing.T) *probe {
	t.Helper()
	p := &probe{pool: pgtest.New(t, "points"), nats: natstest.New(t)}
	p.cfg = process.Service{HTTPAddr: servicetest.FreeAddr(t), OpsAddr: servicetest.FreeAddr(t), DatabaseConns: 2,
		DatabaseURL: process.Secret(p.pool.Config().ConnString()), NATSURL: process.Secret(p.nats.URL())}
	if err := natsbroker.EnsureTopology(t.Context(), p.nats.URL(), topology); err != nil {
		t.Fatal(err)
	}
	return p
}

// run is what a service's own Run does.
func (p *probe) run(ctx context.Context, more ...func(context.Context) error) error {
	base, err := service.Open(ctx, "points", p.cfg, opsapi.Flags{})
	if err != nil {
		return err
	}
	defer base.Close()
	consumer := messaging.NewConsumer("points-noter", base.Consumers, base.Broker, base.Consuming)
	messaging.Handle(consumer, func(context.Context, pgx.Tx, messaging.Event[noted]) error { return nil })
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	return base.Run(ctx, api, consumer, opsapi.Own{}, more...)
}

func (p *probe) ready(query string) bool {
	return servicetest.Status("http://"+p.cfg.OpsAddr+"/readyz"+query) == http.StatusOK
}

func (p *probe) requireServing(t *testing.T) {
	t.Helper()
	if got := servicetest.Status("http://" + p.cfg.HTTPAddr); got != http.StatusTeapot {
		t.Errorf("the API answers %d, want %d", got, http.StatusTeapot)
	}
}

// Without its durable a service does half of its work, and without the broker
// too. It says so, and serves its customers all the same.
func TestAServiceIsNotReadyWithoutItsDurableOrTheBrokerAndServesCustomersAllTheSame(t *testing.T) {
	t.Parallel()
	p := newProbe(t)
	servicetest.Start(t, func(ctx context.Context) error { return p.run(ctx) })
	servicetest.AwaitReady(t, p.cfg.OpsAddr)
	const forCustomers = "?exclude=broker&exclude=durable"
	for what, lose := range map[string]func(){
		"the durable": func() { p.nats.DeleteDurable(t, natsbroker.DefaultStream, "points-noter") },
		"the broker":  p.nats.Stop,
	} {
		lose()
		servicetest.Eventually(t, "the service is not ready without "+what, func() bool { return !p.ready("") })
		if !p.ready(forCustomers) {
			t.Errorf("without %s customers are sent away", what)
		}
		p.requireServing(t)
		p.nats.Restart(t)
		if err := natsbroker.EnsureTopology(t.Context(), p.nats.URL(), topology); err != nil {
			t.Fatal(err)
		}
		servicetest.AwaitReady(t, p.cfg.OpsAddr)
	}
}

func TestWhenOnePartFailsTheOthersStopAndTheServiceSaysWhy(t *testing.T) {
	t.Parallel()
	p := newProbe(t)
	broken, stopped := errors.New("the part broke"), false
	err := p.run(t.Context(),
		func(ctx context.Context) error { <-ctx.Done(); stopped = true; return nil },
		func(context.Context) error { return broken })
	if !errors.Is(err, broken) || !stopped {
		t.Errorf("got %v, and the other part stopped: %t, want %v and true", err, stopped, broken)
	}
	if got := servicetest.Status("http://" + p.cfg.HTTPAddr); got != 0 {
		t.Errorf("the API answers %d after the end", got)
	}
}

func TestAServiceThatCannotOpenLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging") // without the tables of points
	cfg := process.Service{DatabaseURL: process.Secret(pool.Config().ConnString()), DatabaseConns: 2, NATSURL: "nats://127.0.0.1:1"}
	_, err := service.Open(t.Context(), "points", cfg, opsapi.Flags{})
	if err == nil || !strings.Contains(err.Error(), "points") {
		t.Errorf("got %v, want the missing schema named", err)
	}
	servicetest.Eventually(t, "no session is left", func() bool {
		var left int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'points%'`).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
	if _, err := service.Open(t.Context(), "points", cfg, opsapi.Flags{PayloadKeys: "rubbish"}); err == nil || strings.Contains(err.Error(), "rubbish") {
		t.Errorf("got %v, want a refusal that does not repeat the key", err)
	}
}
