package alarms

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"orderpaid/demo"
)

func bin(root string) string { return filepath.Join(root, ".orderpaid", "bin") }

// startShop starts the whole shop with data of its own, in dir.
func startShop(t *testing.T, dir string, env ...string) *demo.Stack {
	t.Helper()
	root, err := demo.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	stack, err := demo.Up(t.Context(), demo.StackConfig{Root: root, Bin: bin(root), Dir: dir, AnyPorts: true, Unsafe: true, Env: env,
		Notice: func(line string) { fmt.Println("shop:", line) }})
	t.Cleanup(func() {
		if err := stack.Down(); err != nil {
			t.Errorf("stop the shop: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

// listeners returns where the shop's processes export their metrics.
func listeners(shop *demo.Stack) (targets []string) {
	for _, urls := range []map[string]string{shop.OpsURL, shop.RelayURL} {
		for _, url := range urls {
			targets = append(targets, strings.TrimPrefix(url, "http://"))
		}
	}
	return targets
}

// press presses one of the console's buttons that break things.
func press(t *testing.T, shop *demo.Stack, button string) {
	t.Helper()
	resp, err := http.Post(shop.URL["console"]+"/live/"+button, "application/x-www-form-urlencoded", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK { // of the page that it leads to
		t.Fatalf("press %s: %s", button, resp.Status)
	}
}

// page returns what is at an address.
func page(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// load has customers place orders and pay them.
func load(t *testing.T, shop *demo.Stack, orders int) {
	t.Helper()
	if err := demo.Load(t.Context(), demo.LoadConfig{OrderURL: shop.URL["order"], WebhookSecret: shop.WebhookSecret,
		Journal: filepath.Join(t.TempDir(), "journal.jsonl"), Orders: orders}); err != nil {
		t.Fatal(err)
	}
}

// buy places an order and pays it, which stages events. It returns its id.
func buy(t *testing.T, shop *demo.Stack) (order string) {
	t.Helper()
	body := `{"user_id":"alarmed","currency":"CNY","items":[{"sku":"OUT-PACK-22","quantity":1}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, shop.URL["order"]+"/v1/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", rand.Text())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("place an order: %s", resp.Status)
	}
	var placed struct {
		OrderID string `json:"order_id"`
		Total   struct {
			Amount int64 `json:"amount"`
		} `json:"total"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&placed); err != nil {
		t.Fatal(err)
	}
	pay(t, shop, placed.OrderID, placed.Total.Amount)
	return placed.OrderID
}

// payAgain makes a second payment of an order, which nothing in the shop takes.
func payAgain(t *testing.T, shop *demo.Stack, order string) {
	t.Helper()
	eventually(t, "the first payment is taken", func() bool {
		return text(t, shop, "order", `SELECT state FROM orders WHERE order_id = $1`, order) == "PAID"
	})
	pay(t, shop, order, 1)
}

func pay(t *testing.T, shop *demo.Stack, order string, amount int64) {
	t.Helper()
	payment := fmt.Sprintf(`{"order_id":%q,"amount":%d,"currency":"CNY","exponent":2}`, order, amount)
	paid, err := http.Post(shop.URL["sim"]+"/payments", "application/json", strings.NewReader(payment))
	if err != nil {
		t.Fatal(err)
	}
	defer paid.Body.Close()
	if paid.StatusCode != http.StatusCreated {
		t.Fatalf("pay the order: %s", paid.Status)
	}
}

// breakMail replaces what the mail server does wrong.
func breakMail(t *testing.T, shop *demo.Stack, fault string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, shop.URL["sim"]+"/faults", strings.NewReader(`{"faults":[`+fault+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		t.Fatalf("break the mail server: %s", resp.Status)
	}
}

// shopctl runs a command of the runbook, as the demo's settings in dir say.
func shopctl(t *testing.T, dir string, mustSucceed bool, args ...string) {
	t.Helper()
	root, err := demo.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin(root), "shopctl"), args...)
	cmd.Env = shopctlEnv(dir)
	if out, err := cmd.CombinedOutput(); err != nil && mustSucceed {
		t.Fatalf("shopctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func shopctlEnv(dir string) []string {
	return append(os.Environ(), "SHOPCTL_ENV_FILE="+filepath.Join(dir, "shopctl.env"))
}
