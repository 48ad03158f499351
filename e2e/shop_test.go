package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/demo"
)

// The whole shop is started once; its tests look at different orders.
func TestTheShop(t *testing.T) {
	t.Parallel()
	shop := startShop(t)
	t.Run("TwentyCallbacksForOnePaymentHaveOneEffect", func(t *testing.T) { twentyCallbacks(t, shop) })
	t.Run("EveryProcessMayDieUnderLoad", func(t *testing.T) { everyProcessDies(t, shop) })
	t.Run("AskedToStopEveryServiceFinishesWhatItHasBegun", func(t *testing.T) { everyProcessIsReplaced(t, shop) })
}

// startShop starts every process of the shop, on ports of its own.
func startShop(t *testing.T) *demo.Stack {
	t.Helper()
	dir, err := os.MkdirTemp("", "orderpaid-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL's user must be able to enter it
		t.Fatal(err)
	}
	shop, err := demo.Up(t.Context(), demo.StackConfig{
		Root: root, Bin: bin, Dir: dir, AnyPorts: true, Unsafe: true, Env: []string{markEnv + "=" + mark},
		Notice: func(line string) { t.Log(line) },
	})
	t.Cleanup(func() {
		if err := shop.Down(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("data and logs of the shop are kept in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return shop
}

func twentyCallbacks(t *testing.T, shop *demo.Stack) {
	var placed struct {
		OrderID string `json:"order_id"`
		Total   struct {
			Amount   int64  `json:"amount"`
			Currency string `json:"currency"`
			Exponent int    `json:"exponent"`
		} `json:"total"`
	}
	post(t, shop.URL["order"]+"/v1/orders", map[string]any{
		"user_id": "u-twenty", "currency": "CNY", "items": []map[string]any{{"sku": anySKU(t, shop), "quantity": 2}},
	}, &placed)
	post(t, shop.URL["sim"]+"/payments", map[string]any{
		"order_id": placed.OrderID, "amount": placed.Total.Amount, "currency": placed.Total.Currency, "exponent": placed.Total.Exponent,
		"announce": map[string]any{"copies": 20, "fresh_ids": true},
	}, nil)

	var order struct {
		State     string `json:"state"`
		FollowUps []struct {
			State string `json:"state"`
		} `json:"follow_ups"`
	}
	eventually(t, time.Minute, "the order is paid and all that follows is done", func() bool {
		get(t, shop.URL["order"]+"/v1/orders/"+placed.OrderID, &order)
		return order.State == "PAID" && len(order.FollowUps) == 2 && order.FollowUps[0].State == "done" && order.FollowUps[1].State == "done"
	})
	var payments struct {
		Payments []struct {
			Callbacks []struct {
				Done bool `json:"done"`
			} `json:"callbacks"`
		} `json:"payments"`
	}
	eventually(t, time.Minute, "all twenty callbacks are answered with 2xx", func() bool {
		get(t, shop.URL["sim"]+"/payments?order="+placed.OrderID, &payments)
		done := 0
		for _, callback := range payments.Payments[0].Callbacks {
			if callback.Done {
				done++
			}
		}
		return done == 20
	})

	for _, effect := range []struct{ what, database, sql string }{
		{"row OrderPaid in the outbox", "order", `SELECT count(*) FROM message_outbox WHERE aggregate_id = $1 AND kind = 'OrderPaid.v1'`},
		{"payment", "order", `SELECT count(*) FROM payment WHERE order_id = $1`},
		{"entry in the ledger", "points", `SELECT count(*) FROM points_entry WHERE order_id = $1`},
		{"mail to send", "notify", `SELECT count(*) FROM delivery_task WHERE order_id = $1`},
		{"document", "search", `SELECT count(*) FROM order_document WHERE order_id = $1 AND state = 'PAID'`},
	} {
		if got := count(t, openDatabase(t, shop, effect.database), effect.sql, placed.OrderID); got != 1 {
			t.Errorf("%d times %q, want once", got, effect.what)
		}
	}
	var mails struct {
		Mails []struct{} `json:"mails"`
	}
	get(t, shop.URL["sim"]+"/mails?order="+placed.OrderID, &mails)
	if len(mails.Mails) != 1 {
		t.Errorf("%d mails in the sink, want 1", len(mails.Mails))
	}
}

// everyProcessDies kills one process after the other while orders are placed,
// the broker included, and expects the same table as on a quiet day.
func everyProcessDies(t *testing.T, shop *demo.Stack) {
	victims := []string{demo.Relay(1), "points", "order", "notify", "nats-server", "search", demo.Relay(2)}
	requireTheTable(t, shop, victims, shop.Kill)
}

// everyProcessIsReplaced asks each process to stop, as a rollout does.
func everyProcessIsReplaced(t *testing.T, shop *demo.Stack) {
	victims := []string{"search", demo.Relay(2), "notify", "order", "points", demo.Relay(1)}
	requireTheTable(t, shop, victims, shop.Terminate)
}

// requireTheTable loads the shop, ends each victim in turn, and fails the test
// if anything differs from what the client was told.
func requireTheTable(t *testing.T, shop *demo.Stack, victims []string, end func(string) error) {
	t.Helper()
	const ordersPerVictim = 25
	var next atomic.Int64
	cfg := demo.LoadConfig{
		OrderURL: shop.URL["order"], WebhookSecret: shop.WebhookSecret, Orders: ordersPerVictim * (len(victims) + 1),
		Journal: filepath.Join(t.TempDir(), "journal.jsonl"), Rate: 50,
		Progress: func(done int) {
			if n := int(next.Load()); done >= ordersPerVictim*(n+1) && n < len(victims) && next.CompareAndSwap(int64(n), int64(n+1)) {
				if err := end(victims[n]); err != nil {
					t.Error(err)
				}
			}
		},
	}
	if err := demo.Load(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	report, err := demo.Verify(t.Context(), shop, cfg.Journal, 2*time.Minute, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	if !report.OK {
		t.Error("the table differs")
	}
}

func openDatabase(t *testing.T, shop *demo.Stack, service string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), shop.DSN(demo.Database(service), "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func anySKU(t *testing.T, shop *demo.Stack) string {
	t.Helper()
	var products struct {
		Items []struct {
			SKU string `json:"sku"`
		} `json:"items"`
	}
	get(t, shop.URL["order"]+"/v1/products?limit=1", &products)
	return products.Items[0].SKU
}

func post(t *testing.T, url string, body, answer any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%d", t.Name()[strings.LastIndexByte(t.Name(), '/')+1:], time.Now().UnixNano()))
	request(t, req, answer)
}

func get(t *testing.T, url string, answer any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request(t, req, answer)
}

func request(t *testing.T, req *http.Request, answer any) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s", req.Method, req.URL, resp.Status)
	}
	if answer == nil {
		return
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
}
