package shopctl_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/demo"
	"orderpaid/demo/sim"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
	"orderpaid/platform/service/servicetest"
	"orderpaid/services/notify"
	"orderpaid/services/order"
	"orderpaid/services/points"
	"orderpaid/services/search"
	"orderpaid/shopctl"
)

// The tokens of these tests. Alice acts, Bob approves, the viewer looks.
const (
	alice  = "alice-alice-alice-alice"
	bob    = "bob-bob-bob-bob-bob-bob"
	viewer = "viewer-viewer-viewer-viewer"
	peer   = "peer-peer-peer-peer-peer"

	tokens = "alice:operator:" + alice + " bob:approver:" + bob + " viewer:viewer:" + viewer + " services:peer:" + peer
)

var webhookSecret = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))

var serviceNames = []string{"order", "points", "notify", "search"}

// A world is the whole shop in this process: real services, relays and servers.
type world struct {
	db         map[string]*pgxpool.Pool
	nats       *natstest.Server
	httpAddr   map[string]string
	opsAddr    map[string]string
	smtp       string
	provider   string // where payments are made
	stops      map[string]func()
	relaysStop func()
}

// newWorld starts the shop. It stops with the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{db: map[string]*pgxpool.Pool{}, nats: natstest.New(t), httpAddr: map[string]string{}, opsAddr: map[string]string{}, stops: map[string]func(){}}
	w.ensureTopology(t)
	for _, name := range serviceNames {
		w.db[name], w.httpAddr[name], w.opsAddr[name] = pgtest.New(t, name), servicetest.FreeAddr(t), servicetest.FreeAddr(t)
	}
	outside, err := sim.Listen(t.Context(), sim.Config{HTTPAddr: "127.0.0.1:0", SMTPAddr: "127.0.0.1:0", KeepMails: 10_000,
		WebhookSecret: process.Secret(webhookSecret), WebhookURL: "http://" + w.httpAddr["order"] + "/v1/webhooks/payments"})
	if err != nil {
		t.Fatal(err)
	}
	w.smtp, w.provider = outside.SMTPAddr(), "http://"+outside.HTTPAddr()+"/payments"
	background(t, outside.Run)
	w.startRelays(t)
	for _, name := range serviceNames {
		w.start(t, name)
	}
	for _, name := range serviceNames {
		w.awaitReady(t, name)
	}
	return w
}

func (w *world) ensureTopology(t *testing.T) {
	t.Helper()
	if err := natsbroker.EnsureTopology(t.Context(), w.nats.URL(), shopctl.Topology()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) service(name string) process.Service {
	return process.Service{HTTPAddr: w.httpAddr[name], OpsAddr: w.opsAddr[name], DatabaseConns: 4,
		DatabaseURL: process.Secret(w.db[name].Config().ConnString()), NATSURL: process.Secret(w.nats.URL())}
}

func (w *world) flags() opsapi.Flags {
	return opsapi.Flags{OpsTokens: tokens, OpsPeers: w.opsURLs(), OpsPeerToken: peer, OpsOwner: "the engineer on call", OpsRunbook: "docs/05-operate.md",
		PayloadKeys: process.Secret("first:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{3}, 32)))}
}

func (w *world) opsURLs() map[string]string {
	urls := map[string]string{}
	for name, addr := range w.opsAddr {
		urls[name] = "http://" + addr
	}
	return urls
}

// start runs a service until it is stopped, or the test ends.
func (w *world) start(t *testing.T, name string) {
	t.Helper()
	var run func(context.Context) error
	switch name {
	case "order":
		run = func(ctx context.Context) error {
			return order.Run(ctx, order.Config{Service: w.service(name), Flags: w.flags(), WebhookSecrets: []process.Secret{process.Secret(webhookSecret)}})
		}
	case "points":
		run = func(ctx context.Context) error {
			return points.Run(ctx, points.Config{Service: w.service(name), Flags: w.flags()})
		}
	case "notify":
		run = func(ctx context.Context) error {
			return notify.Run(ctx, notify.Config{Service: w.service(name), Flags: w.flags(), SMTPAddr: w.smtp, MailFrom: "orders@shop.example",
				ContactDomain: "customers.example", SendTimeout: 15 * time.Second, SendConcurrency: 4, UnknownRepeats: 1})
		}
	case "search":
		run = func(ctx context.Context) error {
			return search.Run(ctx, search.Config{Service: w.service(name), Flags: w.flags()})
		}
	}
	w.stops[name] = background(t, run)
}

func (w *world) stop(name string) { w.stops[name]() }

func (w *world) awaitReady(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is ready", func() bool {
		resp, err := http.Get("http://" + w.opsAddr[name] + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// startRelays runs one relay for each outbox.
func (w *world) startRelays(t *testing.T) {
	t.Helper()
	broker := connect(t, w.nats.URL(), "relay")
	var stops []func()
	for _, name := range []string{"order", "points", "notify"} {
		relay, err := messaging.NewRelay(w.db[name], broker, messaging.RelayConfig{Lease: 2 * time.Second, Poll: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, background(t, relay.Run))
	}
	w.relaysStop = func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func connect(t *testing.T, url, name string) *natsbroker.Broker {
	t.Helper()
	broker, err := natsbroker.Connect(t.Context(), natsbroker.Config{URL: url, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker
}

// load places orders that are paid, refunded, cancelled or left alone, and
// waits until the shop has done what it owes for them.
func (w *world) load(t *testing.T, orders int) {
	t.Helper()
	err := demo.Load(t.Context(), demo.LoadConfig{OrderURL: "http://" + w.httpAddr["order"], WebhookSecret: webhookSecret,
		Journal: filepath.Join(t.TempDir(), "journal.jsonl"), Orders: orders})
	if err != nil {
		t.Fatal(err)
	}
	w.awaitIdle(t)
}

// pay places one order and pays it, and returns its id when it is paid.
func (w *world) pay(t *testing.T) string {
	t.Helper()
	var placed struct {
		OrderID string `json:"order_id"`
		Total   struct {
			Amount   int64  `json:"amount"`
			Currency string `json:"currency"`
			Exponent int    `json:"exponent"`
		} `json:"total"`
	}
	post(t, "http://"+w.httpAddr["order"]+"/v1/orders", `{"user_id":"u_1","currency":"CNY","items":[{"sku":"OUT-PACK-38UL","quantity":1}]}`, &placed)
	post(t, w.provider, fmt.Sprintf(`{"order_id":%q,"amount":%d,"currency":%q,"exponent":%d}`,
		placed.OrderID, placed.Total.Amount, placed.Total.Currency, placed.Total.Exponent), nil)
	eventually(t, "the order is paid", func() bool {
		return w.count(t, "order", `SELECT count(*) FROM orders WHERE order_id = $1 AND state = 'PAID'`, placed.OrderID) == 1
	})
	return placed.OrderID
}

func post(t *testing.T, url, body string, answer any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
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
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("POST %s: %s %s %v", url, resp.Status, raw, err)
	}
	if answer != nil {
		if err := json.Unmarshal(raw, answer); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitIdle waits until nothing is on its way.
func (w *world) awaitIdle(t *testing.T) {
	t.Helper()
	eventually(t, "all is done", func() bool {
		paid := w.count(t, "order", `SELECT count(*) FROM orders WHERE state = 'PAID'`)
		return paid == w.count(t, "points", `SELECT count(*) FROM points_entry WHERE kind = 'award'`) &&
			paid == w.count(t, "notify", `SELECT count(*) FROM delivery_task WHERE state = 'sent'`) &&
			paid == w.count(t, "search", `SELECT count(*) FROM order_document WHERE state = 'PAID'`) &&
			w.count(t, "order", `SELECT count(*) FROM follow_up WHERE state <> 'done'`) == 0 &&
			w.count(t, "order", `SELECT count(*) FROM refund`) == w.count(t, "points", `SELECT count(*) FROM points_entry WHERE kind = 'reversal'`) &&
			w.count(t, "order", `SELECT sum(version) FROM orders`) == w.count(t, "search", `SELECT sum(version) FROM order_document`) &&
			w.pending(t) == 0
	})
}

func (w *world) pending(t *testing.T) (n int) {
	t.Helper()
	for _, name := range []string{"order", "points", "notify"} {
		n += w.count(t, name, `SELECT (SELECT count(*) FROM message_outbox_pending) + (SELECT count(*) FROM message_outbox_held)`)
	}
	return n
}

func (w *world) count(t *testing.T, service, sql string, args ...any) (n int) {
	t.Helper()
	if err := w.db[service].QueryRow(t.Context(), `SELECT coalesce((`+sql+`), 0)::bigint`, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (w *world) text(t *testing.T, service, sql string, args ...any) (s string) {
	t.Helper()
	if err := w.db[service].QueryRow(t.Context(), sql, args...).Scan(&s); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return s
}

func (w *world) exec(t *testing.T, service, sql string, args ...any) {
	t.Helper()
	if _, err := w.db[service].Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// paidOrder returns an order that was paid.
func (w *world) paidOrder(t *testing.T) string {
	t.Helper()
	return w.text(t, "order", `SELECT order_id FROM orders WHERE state = 'PAID' AND refunded_amount = 0 ORDER BY order_id LIMIT 1`)
}

// as runs a command of shopctl as the bearer of a token, and returns what it
// printed.
func (w *world) as(t *testing.T, token, line string, args ...string) (string, error) {
	t.Helper()
	var services []string
	for name, url := range w.opsURLs() {
		services = append(services, name+"="+url)
	}
	given := append(strings.Fields(line), args...)
	given = append(given, "--service-url="+strings.Join(services, " "), "--token="+token)
	return w.run(t, given...)
}

// run runs a command of shopctl.
func (w *world) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var cli shopctl.Commands
	var out bytes.Buffer
	parser, err := kong.New(&cli, kong.Name("shopctl"), kong.BindTo(t.Context(), (*context.Context)(nil)), kong.BindTo(&out, (*io.Writer)(nil)),
		kong.Exit(func(int) {}), kong.Writers(&out, &out))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		t.Fatalf("shopctl %s: %v", strings.Join(args, " "), err)
	}
	err = shopctl.Run(parsed)
	return out.String(), err
}

// must is as, for commands that must succeed.
func (w *world) must(t *testing.T, token, line string, args ...string) string {
	t.Helper()
	out, err := w.as(t, token, line, args...)
	if err != nil {
		t.Fatalf("shopctl %s %s: %v\n%s", line, strings.Join(args, " "), err, out)
	}
	return out
}

// requireIn fails unless the text holds each of the parts.
func requireIn(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

// background runs something until the test ends or stop is called, and waits.
func background(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("it did not end within 30 s")
		}
	}
	t.Cleanup(stop)
	return stop
}

// eventually polls until ok, or fails.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(60 * time.Second); !ok(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 60 s: %s", what)
		}
	}
}
