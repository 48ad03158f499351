package demo

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
)

// How long what is frozen stays so, unless somebody heals it first.
const (
	freezeProcess  = 60 * time.Second
	freezePostgres = 8 * time.Second
)

// A control breaks the stack on purpose, for the console's buttons. It listens
// on this machine only and wants a token that only the console has.
//
// What it freezes goes on by itself after a while, and in any case before the
// stack stops: a frozen process cannot end.
type control struct {
	url, token string

	stack *Stack
	stop  context.CancelFunc
	done  chan struct{}

	mu    sync.Mutex
	wrong map[string]*breakage // by what is broken
}

// A breakage is one thing that is broken at the moment.
type breakage struct {
	until time.Time // zero: until somebody heals it
	timer *time.Timer
	heal  func()
}

// newControl starts to listen. Close it.
func (s *Stack) newControl(ctx context.Context) (*control, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the console's buttons: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // outlives the start
	c := &control{url: "http://" + ln.Addr().String(), token: rand.Text(), stack: s, stop: stop, done: make(chan struct{}), wrong: map[string]*breakage{}}
	go func() {
		defer close(c.done)
		if err := httpserver.Serve(ctx, ln, c.handler()); err != nil {
			s.cfg.Notice(fmt.Sprintf("the console's buttons: %v", err))
		}
	}()
	return c, nil
}

func (c *control) close() {
	c.healAll()
	c.stop()
	<-c.done
}

func (c *control) handler() http.Handler {
	r := httpserver.NewRouter("demo")
	r.Use(c.authenticate)
	r.Get("/state", func(w http.ResponseWriter, _ *http.Request) { httpserver.WriteJSON(w, http.StatusOK, c.state()) })
	r.Post("/break/{what}", func(w http.ResponseWriter, r *http.Request) {
		if err := c.act(r.Context(), chi.URLParam(r, "what")); err != nil {
			httpserver.WriteError(w, r, err)
			return
		}
		httpserver.WriteJSON(w, http.StatusOK, c.state())
	})
	return r
}

func (c *control) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(c.token)) != 1 {
			httpserver.WriteError(w, r, &httpserver.Error{Status: http.StatusUnauthorized, Code: "unauthenticated", Detail: "only the console may do this"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

type faultState struct {
	What  string    `json:"what"`
	Until time.Time `json:"until,omitzero"`
}

type controlState struct {
	Faults []faultState `json:"faults"`
}

func (c *control) state() controlState {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := controlState{Faults: []faultState{}}
	for _, what := range []string{"relays", "points", "mail", "postgres"} {
		if b := c.wrong[what]; b != nil {
			state.Faults = append(state.Faults, faultState{what, b.until})
		}
	}
	return state
}

// act breaks one thing, or heals all.
func (c *control) act(ctx context.Context, what string) error {
	switch what {
	case "heal":
		c.healAll()
		return nil
	case "relay":
		return c.stack.Kill(Relay(1))
	case "relays":
		return c.freeze(what, freezeProcess, c.relays()...)
	case "points":
		return c.freeze(what, freezeProcess, "points")
	case "postgres":
		return c.freezeDatabase()
	case "mail":
		return c.refuseMail(ctx)
	case "duplicates":
		return c.duplicate(ctx)
	case "poison":
		return c.poison(ctx)
	}
	return &httpserver.Error{Status: http.StatusNotFound, Code: "unknown_fault", Detail: "this cannot be broken"}
}

// note records a breakage, and heals it when its time is over.
func (c *control) note(what string, lasts time.Duration, heal func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.wrong[what]; old != nil && old.timer != nil {
		old.timer.Stop()
	}
	b := &breakage{heal: heal}
	if lasts > 0 {
		b.until = now().Add(lasts)
		b.timer = time.AfterFunc(lasts, func() { c.healOne(what, b) })
	}
	c.wrong[what] = b
}

// healOne heals a breakage, unless it was renewed meanwhile.
func (c *control) healOne(what string, b *breakage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong[what] == b {
		delete(c.wrong, what)
		b.heal()
	}
}

func (c *control) healAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, b := range c.wrong {
		if b.timer != nil {
			b.timer.Stop()
		}
		b.heal()
		delete(c.wrong, what)
	}
}

func (c *control) relays() []string {
	names := make([]string, c.stack.cfg.Relays)
	for n := range names {
		names[n] = Relay(n + 1)
	}
	return names
}

// freeze stops processes where they stand, as a machine does that swaps: they
// hold their connections and leases, and answer nothing.
func (c *control) freeze(what string, lasts time.Duration, names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, c.stack.signal(name, syscall.SIGSTOP))
	}
	c.note(what, lasts, func() {
		for _, name := range names {
			_ = c.stack.signal(name, syscall.SIGCONT) // one that has died meanwhile is not frozen
		}
	})
	return errors.Join(errs...)
}

// freezeDatabase stops the server first, so that it starts no further session,
// and then its sessions.
func (c *control) freezeDatabase() error {
	if runtime.GOOS != "linux" {
		return &httpserver.Error{Status: http.StatusNotImplemented, Code: "needs_linux", Detail: "sessions of PostgreSQL are found through /proc, which this system has not"}
	}
	server := c.stack.postgres.PID()
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze PostgreSQL: %w", err)
	}
	frozen := []int{server}
	parents, err := linuxParents()
	for pid, parent := range parents {
		if parent == server && syscall.Kill(pid, syscall.SIGSTOP) == nil {
			frozen = append(frozen, pid)
		}
	}
	c.note("postgres", freezePostgres, func() {
		for _, pid := range frozen {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it was stopped, so it still has this number
		}
	})
	return err
}

// refuseMail has the demo's mail server put every mail off.
func (c *control) refuseMail(ctx context.Context) error {
	faults := c.stack.URL["sim"] + "/faults"
	if err := ask(ctx, http.MethodPut, faults, `{"faults":[{"kind":"refuse","code":451}]}`); err != nil {
		return err
	}
	c.note("mail", 0, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = ask(ctx, http.MethodDelete, faults, "") // a sim that has ended refuses nothing any more
	})
	return nil
}

func ask(ctx context.Context, method, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return nil
}

const sqlNewestEvents = `SELECT subject, aggregate_id, payload FROM message_outbox ORDER BY event_id DESC LIMIT $1`

// duplicate publishes the newest events of every outbox again, under message
// ids that the broker has never seen: it cannot know that they are the same.
func (c *control) duplicate(ctx context.Context) error {
	var messages []messaging.Message
	for _, service := range producers {
		found, err := c.newest(ctx, service, sqlNewestEvents, 170)
		if err != nil {
			return err
		}
		messages = append(messages, found...)
	}
	return c.publish(ctx, messages)
}

// sqlNewestPayment leaves out orders that were refunded since: behind the
// refund's version, the payment's would look like an event that was overtaken.
const sqlNewestPayment = `
SELECT m.subject, m.aggregate_id, m.payload
  FROM message_outbox m
 WHERE m.kind = 'OrderPaid.v1'
   AND NOT EXISTS (SELECT FROM message_outbox later WHERE later.aggregate_id = m.aggregate_id AND later.aggregate_version > m.aggregate_version)
 ORDER BY m.event_id DESC
 LIMIT $1`

// poison publishes the newest payment as another event, whose points are a
// word. Nothing in it is wrong for anybody but the points service.
func (c *control) poison(ctx context.Context) error {
	messages, err := c.newest(ctx, "order", sqlNewestPayment, 1)
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		return &httpserver.Error{Status: http.StatusConflict, Code: "no_payment", Detail: "nothing has been paid yet; buy something first"}
	}
	m := &messages[0]
	var envelope, data map[string]json.RawMessage
	if err := json.Unmarshal(m.Data, &envelope); err != nil {
		return fmt.Errorf("poison an event: %w", err)
	}
	if err := json.Unmarshal(envelope["data"], &data); err != nil {
		return fmt.Errorf("poison an event: %w", err)
	}
	data["points_delta"] = json.RawMessage(`"many"`)
	if envelope["data"], err = json.Marshal(data); err != nil {
		return fmt.Errorf("poison an event: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("poison an event: %w", err)
	}
	m.ID, envelope["event_id"] = id, json.RawMessage(`"`+id.String()+`"`)
	if m.Data, err = json.Marshal(envelope); err != nil {
		return fmt.Errorf("poison an event: %w", err)
	}
	return c.publish(ctx, messages)
}

// newest reads events of an outbox, each as a message of a new id.
func (c *control) newest(ctx context.Context, service, sql string, limit int) ([]messaging.Message, error) {
	conn, err := pgx.Connect(ctx, c.stack.DSN(Database(service), ownerRole))
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", service, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, sql, limit)
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", service, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (messaging.Message, error) {
		m := messaging.Message{ID: uuid.New()}
		return m, row.Scan(&m.Subject, &m.Key, &m.Data)
	})
}

func (c *control) publish(ctx context.Context, messages []messaging.Message) error {
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: c.stack.NATSURL, Name: "demo"})
	if err != nil {
		return err
	}
	defer broker.Close()
	for _, receipt := range broker.Publish(ctx, messages) {
		err = errors.Join(err, receipt.Err)
	}
	return err
}
