package notify

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/demo/sim"
	"orderpaid/platform/auth"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgtest"
)

// A fixture is the service on a database of its own, next to a mail server of
// its own. Nothing is sent before startSending.
type fixture struct {
	pool     *pgxpool.Pool
	outbox   *messaging.Outbox
	service  *Service
	consumer *messaging.Consumer
	server   mailServer
	logged   *logBuffer
	wake     *func()
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{pool: pgtest.New(t, "notify"), server: startMailServer(t, "127.0.0.1:0"), logged: new(logBuffer)}
	wake := func() {}
	f.wake = &wake
	var err error
	if f.outbox, err = messaging.NewOutbox(messaging.OutboxConfig{Producer: "notify"}); err != nil {
		t.Fatal(err)
	}
	f.service = NewService(f.pool, func() { (*f.wake)() })
	f.consumer = messaging.NewConsumer(sender, f.pool, nil, messaging.ConsumerConfig{})
	f.service.register(f.consumer)
	return f
}

// quick is a policy for tests that do not want to wait.
func quick(attempts, repeats int) DeliveryConfig {
	return DeliveryConfig{
		ContactDomain: "customers.example",
		Policy:        Policy{MaxAttempts: attempts, FirstRetry: time.Millisecond, LastRetry: time.Millisecond, UnknownRepeats: repeats},
	}
}

// startSending runs a delivery until the test ends or stop is called; stop
// returns when it has ended.
func (f fixture) startSending(t *testing.T, cfg DeliveryConfig) (stop func()) {
	t.Helper()
	d := f.newDelivery(t, cfg)
	*f.wake = d.Wake
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the delivery ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (f fixture) newDelivery(t *testing.T, cfg DeliveryConfig) *Delivery {
	t.Helper()
	mailer, err := NewMailer(MailerConfig{Addr: f.server.smtpAddr})
	if err != nil {
		t.Fatal(err)
	}
	cfg.From = "orders@shop.example"
	cfg.Logger = slog.New(slog.NewJSONHandler(f.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := NewDelivery(f.pool, f.outbox, mailer, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A logBuffer collects what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// deliver hands events to the consumer and fails the test if one comes again.
func (f fixture) deliver(t *testing.T, messages ...[]byte) {
	t.Helper()
	if answers := messagingtest.Deliver(t, f.consumer, messages...); !messagingtest.AllAcked(answers) {
		t.Fatalf("not all events were acknowledged: %+v", answers)
	}
}

func newOrder() string {
	id := uuid.Must(uuid.NewV7())
	return "ord_" + hex.EncodeToString(id[:])
}

// paid returns an event as the order service publishes it, with an event id of
// its own.
func paid(t *testing.T, order, user string) []byte {
	t.Helper()
	amount, exponent := int64(1990), 2
	return messagingtest.Envelope(t, order, 2, OrderPaid{
		OrderID: order, UserID: user, Total: eventMoney{&amount, "CNY", &exponent}, PaidAt: time.Date(2026, 10, 3, 2, 0, 41, 0, time.UTC),
	})
}

// request sends a request to the API and decodes the answer into out, unless
// that is nil.
func (f fixture) request(t *testing.T, method, path, body string, out any) (status int) {
	t.Helper()
	w := httptest.NewRecorder()
	f.service.Handler(auth.Open()).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return w.Code
}

// notification returns the only one that the user has.
func (f fixture) notification(t *testing.T, user string) notificationView {
	t.Helper()
	var page notificationsView
	f.request(t, "GET", "/v1/users/"+user+"/notifications", "", &page)
	if len(page.Notifications) != 1 {
		t.Fatalf("%s has %d notifications, want 1", user, len(page.Notifications))
	}
	return page.Notifications[0]
}

// requireState waits until the user's notification is in the state.
func (f fixture) requireState(t *testing.T, user string, want State) notificationView {
	t.Helper()
	var got notificationView
	eventually(t, func() bool {
		got = f.notification(t, user)
		return got.State == want
	}, func() string { return fmt.Sprintf("state %s: %+v", want, got) })
	return got
}

func (f fixture) count(t *testing.T, sql string, args ...any) (n int64) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// eventually polls until ok, or fails the test after 20 seconds.
func eventually(t *testing.T, ok func() bool, what func() string) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("it has not happened within 20 s: %s", what())
		}
	}
}

// A mailServer is the demo's mail sink, spoken to over SMTP and HTTP like any
// other.
type mailServer struct {
	smtpAddr, httpURL string
	stop              func()
}

func startMailServer(t *testing.T, smtpAddr string) mailServer {
	t.Helper()
	world, err := sim.Listen(t.Context(), sim.Config{
		HTTPAddr: "127.0.0.1:0", SMTPAddr: smtpAddr, KeepMails: 10_000,
		WebhookSecret: "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- world.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the mail server ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return mailServer{world.SMTPAddr(), "http://" + world.HTTPAddr(), stop}
}

// setFaults makes the server misbehave; see sim.Fault.
func (s mailServer) setFaults(t *testing.T, faults ...sim.Fault) {
	t.Helper()
	body, err := json.Marshal(map[string][]sim.Fault{"faults": faults})
	if err != nil {
		t.Fatal(err)
	}
	s.request(t, "PUT", "/faults", bytes.NewReader(body), nil)
}

func (s mailServer) mails(t *testing.T, order string) []sim.Mail {
	t.Helper()
	var answer struct{ Mails []sim.Mail }
	s.request(t, "GET", "/mails?limit=1000&order="+url.QueryEscape(order), nil, &answer)
	return answer.Mails
}

func (s mailServer) request(t *testing.T, method, path string, body io.Reader, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.httpURL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: status %d", method, path, resp.StatusCode)
	}
	if out == nil {
		return
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}
