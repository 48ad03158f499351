package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/demo"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/service/servicetest"
	"orderpaid/shopctl"
)

// A counter is the part of the shop that customers stand at: the order service
// with its API, points, a relay for each, and the broker.
type counter struct {
	orderDB, pointsDB *pgxpool.Pool
	natsURL           string
	api, secret       string // of the order service: its address, and what the payment provider signs with
	services          string // the ops APIs, as shopctl wants them
	relays            []*child
}

// operatorToken is what Alice shows to the services' ops APIs.
const operatorToken = "alice-alice-alice-alice"

// newCounter starts the processes on two databases, and returns when they are
// ready.
func newCounter(t *testing.T, orderDB, pointsDB *pgxpool.Pool) *counter {
	t.Helper()
	shop := &counter{orderDB: orderDB, pointsDB: pointsDB, natsURL: natstest.New(t).URL(), secret: webhookSecret()}
	if err := natsbroker.EnsureTopology(t.Context(), shop.natsURL, shopctl.Topology()); err != nil {
		t.Fatal(err)
	}
	addr := servicetest.FreeAddr(t)
	shop.api = "http://" + addr
	order := start(t, "order", "order", "HTTP_ADDR="+addr, "DATABASE_URL="+orderDB.Config().ConnString(), "NATS_URL="+shop.natsURL,
		"WEBHOOK_SECRETS="+shop.secret, "OPS_TOKENS=alice:operator:"+operatorToken)
	points := start(t, "points", "points", "HTTP_ADDR="+servicetest.FreeAddr(t), "DATABASE_URL="+pointsDB.Config().ConnString(), "NATS_URL="+shop.natsURL,
		"OPS_TOKENS=alice:operator:"+operatorToken)
	shop.services = "order=" + order.ops + " points=" + points.ops
	order.awaitReady(t)
	points.awaitReady(t)
	shop.startRelays(t)
	return shop
}

// startRelays starts one relay for each of the two outboxes.
func (shop *counter) startRelays(t *testing.T) {
	t.Helper()
	shop.relays = []*child{
		startRelay(t, 1, "order", shop.orderDB.Config().ConnString(), shop.natsURL),
		startRelay(t, 2, "points", shop.pointsDB.Config().ConnString(), shop.natsURL),
	}
}

// load places orders and returns, once each request has a definite answer,
// what the client was told.
func (shop *counter) load(t *testing.T, cfg demo.LoadConfig) []demo.Entry {
	t.Helper()
	cfg.OrderURL, cfg.WebhookSecret, cfg.Journal = shop.api, shop.secret, filepath.Join(t.TempDir(), "journal")
	if err := demo.Load(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	entries, err := demo.ReadJournal(cfg.Journal)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// settled returns when everything is published, booked and answered.
func (shop *counter) settled(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "all is published and booked", func() bool {
		return pending(t, shop.orderDB)+pending(t, shop.pointsDB) == 0 &&
			count(t, shop.orderDB, `SELECT count(*) FROM message_outbox WHERE kind IN ('OrderPaid.v1', 'OrderRefunded.v1')`) == shop.effects(t)
	})
	requireDrained(t, jetStream(t, shop.natsURL))
}

// effects counts the entries of the ledger.
func (shop *counter) effects(t *testing.T) int {
	t.Helper()
	return count(t, shop.pointsDB, `SELECT count(*) FROM points_entry`)
}

// events returns what both outboxes hold.
func (shop *counter) events(t *testing.T) []uuid.UUID {
	t.Helper()
	return append(ids(t, shop.orderDB, `SELECT event_id FROM message_outbox`), ids(t, shop.pointsDB, `SELECT event_id FROM message_outbox`)...)
}
