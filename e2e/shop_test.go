package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/demo"
)

// The whole shop is started once; its tests look at different orders.
func TestTheShop(t *testing.T) {
	t.Parallel()
	deaths := new(deathNotices)
	shop := startShop(t, deaths)
	t.Run("TwentyCallbacksForOnePaymentHaveOneEffect", func(t *testing.T) { twentyCallbacks(t, shop) })
	t.Run("EveryProcessMayDieUnderLoad", func(t *testing.T) { everyProcessDies(t, shop) })
	t.Run("AskedToStopEveryServiceFinishesWhatItHasBegun", func(t *testing.T) { everyProcessIsReplaced(t, shop, deaths) })
	t.Run("TheTableNoticesWhatIsMissingOrDoubled", func(t *testing.T) { theTableNotices(t, shop) })
}

// deathNotices is what the supervisor said about children that died.
type deathNotices struct {
	mu    sync.Mutex
	lines []string
}

func (d *deathNotices) add(line string) {
	if !strings.Contains(line, " died ") {
		return // it is there again
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// take returns the notices since the last call.
func (d *deathNotices) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

// startShop starts every process of the shop, on ports of its own.
func startShop(t *testing.T, deaths *deathNotices) *demo.Stack {
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
		Notice: deaths.add,
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
		"user_id": "u-twenty", "currency": "CNY", "items": []map[string]any{{"sku": firstSKU(t, shop.URL["order"]), "quantity": 2}},
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
	requireTheTable(t, shop, victims, shop.Kill, mailsOnTheirWay)
}

// everyProcessIsReplaced asks each process to stop, as a rollout does. Each
// must end by itself, with nothing to complain about.
func everyProcessIsReplaced(t *testing.T, shop *demo.Stack, deaths *deathNotices) {
	deaths.take()
	victims := []string{"search", demo.Relay(2), "notify", "order", "points", demo.Relay(1)}
	requireTheTable(t, shop, victims, shop.Terminate, 0)
	ended := deaths.take()
	if len(ended) != len(victims) {
		t.Errorf("%d processes ended, want %d: %q", len(ended), len(victims), ended)
	}
	for _, line := range ended {
		if !strings.Contains(line, "exit status 0") {
			t.Errorf("not a clean end: %s", line)
		}
	}
}

// theTableNotices spoils what a load has left, one thing in each place, and
// expects the check to find them all.
func theTableNotices(t *testing.T, shop *demo.Stack) {
	cfg := demo.LoadConfig{OrderURL: shop.URL["order"], WebhookSecret: shop.WebhookSecret, Orders: 30,
		Journal: filepath.Join(t.TempDir(), "journal.jsonl")}
	if err := demo.Load(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if report := verify(t, shop, cfg.Journal, 2*time.Minute); !report.OK {
		t.Fatalf("the table differs before anything is spoilt:\n%s", report)
	}
	for database, sql := range map[string]string{
		"order":  `DELETE FROM message_outbox WHERE event_id = (SELECT event_id FROM message_outbox WHERE kind = 'OrderPaid.v1' ORDER BY id DESC LIMIT 1)`,
		"points": `DELETE FROM points_entry WHERE entry_id = (SELECT max(entry_id) FROM points_entry WHERE kind = 'award')`,
		"notify": `UPDATE delivery_task SET state = 'failed' WHERE notification_id = (SELECT max(notification_id) FROM delivery_task)`,
		"search": `DELETE FROM order_document WHERE order_id = (SELECT max(order_id) FROM order_document)`,
	} {
		if _, err := openDatabase(t, shop, database).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	report := verify(t, shop, cfg.Journal, time.Second)
	differ := map[string]bool{}
	for _, result := range report.Results {
		differ[result.Check] = !result.OK
	}
	for _, check := range []string{"order: OrderPaid.v1 in the outbox", "points: awards", "points: balances that are not the sum of their entries",
		"notify: mails sent, by its own word", "search: documents in the right state"} {
		if !differ[check] {
			t.Errorf("not noticed: %s", check)
		}
	}
	if report.OK {
		t.Error("the report is fine")
	}
}

// requireTheTable loads the shop, ends each victim in turn, and fails the test
// if anything differs from what the client was told, but for so many copies of
// mails.
func requireTheTable(t *testing.T, shop *demo.Stack, victims []string, end func(string) error, copies int64) {
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
	report := verify(t, shop, cfg.Journal, 2*time.Minute)
	t.Logf("\n%s", report)
	for _, result := range report.Results {
		// A sender that is killed after the mail server has accepted and before
		// it could write that down sends once more, under the same Message-ID;
		// at most the mails that were on their way: services/notify/delivery.go.
		if result.Check == "mail sink: second copies" && result.Found <= copies {
			continue
		}
		if !result.OK {
			t.Errorf("the table differs: %s", result.Check)
		}
	}
}

// mailsOnTheirWay is the number of mails that notify sends at the same time.
const mailsOnTheirWay = 8

func verify(t *testing.T, shop *demo.Stack, journal string, patience time.Duration) *demo.Report {
	t.Helper()
	report, err := demo.Verify(t.Context(), shop, journal, patience, func(demo.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	return report
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
