package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"testing"
	"time"

	"orderpaid/demo"
	"orderpaid/platform/faults"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgserver"
	"orderpaid/platform/service/servicetest"
	"orderpaid/services/order"
)

// crashOrder kills the order service while it applies a payment. The provider
// has no answer and calls again, under the same id and with the same bytes.
func crashOrder(t *testing.T, srv *pgserver.Server, point string) {
	db, broker := onServer(t, srv, "order"), natstest.New(t)
	ensureTopology(t, broker.URL(), order.Subscriptions()...)
	secret, api, world := webhookSecret(), servicetest.FreeAddr(t), servicetest.FreeAddr(t)
	env := []string{"HTTP_ADDR=" + api, "DATABASE_URL=" + db.Config().ConnString(), "NATS_URL=" + broker.URL(),
		"WEBHOOK_SECRETS=" + secret, "CONSUMER_LEASE=2s"}
	victim := start(t, "order-1", "order", append(env, faults.Env+"="+point)...)
	victim.awaitReady(t)
	start(t, "sim", "sim", "SIM_HTTP_ADDR="+world, "SIM_SMTP_ADDR="+servicetest.FreeAddr(t), "SIM_WEBHOOK_SECRET="+secret,
		"SIM_WEBHOOK_URL=http://"+api+"/v1/webhooks/payments").awaitListening(t, world)
	startRelay(t, 1, "order", db.Config().ConnString(), broker.URL())

	placed := placeOrder(t, "http://"+api)
	post(t, "http://"+world+"/payments", map[string]any{
		"order_id": placed.OrderID, "amount": placed.Total.Amount, "currency": placed.Total.Currency, "exponent": placed.Total.Exponent,
	}, nil)
	victim.awaitDeath(t)
	died := time.Now()
	paid := map[string]int{"order.before_commit": 0, "order.after_commit": 1}[point]
	if got := count(t, db, `SELECT count(*) FROM payment`); got != paid {
		t.Errorf("right after the crash there are %d payments, want %d", got, paid)
	}
	start(t, "order-2", "order", env...).awaitReady(t)
	requirePaidOnce(t, "http://"+world, placed.OrderID)
	eventually(t, time.Minute, "the queue is empty", func() bool { return pending(t, db) == 0 })
	report(t, died, 1-count(t, db, `SELECT count(DISTINCT order_id) FROM payment`), count(t, db, `SELECT count(*) - count(DISTINCT order_id) FROM payment`))
	for what, sql := range map[string]string{
		"payments":               `SELECT count(*) FROM payment`,
		"callbacks":              `SELECT count(*) FROM payment_callback`,
		"orders that are paid":   `SELECT count(*) FROM orders WHERE state = 'PAID'`,
		"events OrderPaid":       `SELECT count(*) FROM message_outbox WHERE kind = 'OrderPaid.v1'`,
		"their publications":     `SELECT count(*) FROM message_outbox_publication p JOIN message_outbox o ON o.event_id = p.event_id WHERE o.kind = 'OrderPaid.v1'`,
		"entries in the history": `SELECT count(*) FROM order_history WHERE entry = 'paid'`,
	} {
		if got := count(t, db, sql); got != 1 {
			t.Errorf("%d %s, want 1", got, what)
		}
	}
	audit, err := demo.AuditStream(t.Context(), broker.URL())
	if err != nil {
		t.Fatal(err)
	}
	if got := audit.ByOrder[placed.OrderID]["OrderPaid.v1"]; got != 1 {
		t.Errorf("%d OrderPaid on the stream, want 1", got)
	}
}

// requirePaidOnce waits until the provider has its answer, and fails the test
// unless it needed to call more than once for it.
func requirePaidOnce(t *testing.T, world, orderID string) {
	t.Helper()
	var payments struct {
		Payments []struct {
			Callbacks []struct {
				Attempts int  `json:"attempts"`
				Done     bool `json:"done"`
			} `json:"callbacks"`
		} `json:"payments"`
	}
	eventually(t, time.Minute, "the provider has its answer", func() bool {
		get(t, world+"/payments?order="+orderID, &payments)
		return payments.Payments[0].Callbacks[0].Done
	})
	if got := payments.Payments[0].Callbacks[0].Attempts; got < 2 {
		t.Errorf("the provider called %d times, want a repetition", got)
	}
}

// placedOrder is what a client needs to know of its order in order to pay it.
type placedOrder struct {
	OrderID string `json:"order_id"`
	Total   struct {
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
		Exponent int    `json:"exponent"`
	} `json:"total"`
}

func placeOrder(t *testing.T, api string) (placed placedOrder) {
	t.Helper()
	post(t, api+"/v1/orders", map[string]any{
		"user_id": "u-crash", "currency": "CNY", "items": []map[string]any{{"sku": firstSKU(t, api), "quantity": 2}},
	}, &placed)
	return placed
}

// firstSKU returns something that the shop sells.
func firstSKU(t *testing.T, api string) string {
	t.Helper()
	var products struct {
		Items []struct {
			SKU string `json:"sku"`
		} `json:"items"`
	}
	get(t, api+"/v1/products?limit=1", &products)
	return products.Items[0].SKU
}

// webhookSecret makes what the provider signs with.
func webhookSecret() string {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}
