package alarms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/demo"
	"orderpaid/platform/messaging/natsbroker"
)

// alter runs SQL in a service's database as its owner.
func alter(t *testing.T, shop *demo.Stack, service, sql string, args ...any) {
	t.Helper()
	conn := session(t, shop, service)
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// text returns one value as text, or nothing if there is no row.
func text(t *testing.T, shop *demo.Stack, service, sql string, args ...any) (value string) {
	t.Helper()
	conn := session(t, shop, service)
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func session(t *testing.T, shop *demo.Stack, service string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), shop.DSN(demo.Database(service), "shop_owner"))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// keepFromItsPlace holds a lock on a consumer's place, as a session does that
// somebody has left open: the service runs and cannot renew. The returned
// function ends that.
func keepFromItsPlace(t *testing.T, shop *demo.Stack, service string) (release func()) {
	t.Helper()
	conn := session(t, shop, service)
	release = sync.OnceFunc(func() { _ = conn.Close(context.WithoutCancel(t.Context())) }) // which rolls back
	t.Cleanup(release)
	for _, sql := range []string{`BEGIN`, `SELECT FROM consumer_lease FOR UPDATE`} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return release
}

func stream(t *testing.T, shop *demo.Stack) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(shop.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// takeAway acknowledges an order's payment in the place of a consumer, as a
// tool does that somebody tries on the wrong durable; what else it gets it
// hands back. The consumer never sees the payment.
func takeAway(t *testing.T, shop *demo.Stack, durable, order string) {
	t.Helper()
	consumer, err := stream(t, shop).Consumer(t.Context(), natsbroker.DefaultStream, durable)
	if err != nil {
		t.Fatal(err)
	}
	taken := false
	eventually(t, "the payment of "+order+" is taken away", func() bool {
		batch, err := consumer.Fetch(10, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			if strings.Contains(string(m.Data()), order) && strings.Contains(m.Subject(), "OrderPaid") {
				taken = m.DoubleAck(t.Context()) == nil
			} else {
				_ = m.NakWithDelay(2 * time.Second) // the consumer gets it a second time, which it must bear
			}
		}
		return taken
	})
}

// hold fetches an event in the place of a consumer and keeps it until it is
// handed back, for the consumer to get it a second time.
func hold(t *testing.T, shop *demo.Stack, durable string) (handBack func()) {
	t.Helper()
	consumer, err := stream(t, shop).Consumer(t.Context(), natsbroker.DefaultStream, durable)
	if err != nil {
		t.Fatal(err)
	}
	held, err := consumer.Next(jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := held.Nak(); err != nil {
			t.Fatal(err)
		}
	}
}

// sendAgain publishes an order's payment behind the relays: as it is, which is
// version 2, or as another event of a later version. The broker knows neither.
func sendAgain(t *testing.T, shop *demo.Stack, order string, version int) {
	t.Helper()
	conn := session(t, shop, "order")
	defer conn.Close(t.Context())
	var subject string
	var payload []byte
	err := conn.QueryRow(t.Context(), `SELECT subject, payload FROM message_outbox WHERE aggregate_id = $1 AND kind = 'OrderPaid.v1'`, order).Scan(&subject, &payload)
	if err != nil {
		t.Fatal(err)
	}
	var envelope map[string]json.RawMessage
	if err := json.Unmarshal(payload, &envelope); err != nil {
		t.Fatal(err)
	}
	if version > 2 {
		envelope["event_id"] = json.RawMessage(`"` + uuid.Must(uuid.NewV7()).String() + `"`)
		envelope["aggregate_version"] = json.RawMessage(fmt.Sprint(version))
	}
	again, err := json.Marshal(envelope)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream(t, shop).Publish(t.Context(), subject, again); err != nil {
		t.Fatal(err)
	}
}

// refuse has the points service's database refuse every entry with an error.
func refuse(t *testing.T, shop *demo.Stack, condition string) {
	t.Helper()
	alter(t, shop, "points", `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION USING ERRCODE = '`+condition+`', MESSAGE = 'refused by a test'; END $$`)
	alter(t, shop, "points", `CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON points_entry FOR EACH ROW EXECUTE FUNCTION refuse()`)
}

// forget makes search lose an order, as a restore in parts does.
func forget(t *testing.T, shop *demo.Stack, order string) {
	t.Helper()
	for _, sql := range []string{`DELETE FROM order_document WHERE order_id = $1`, `DELETE FROM message_inbox WHERE aggregate_id = $1`,
		`DELETE FROM message_progress WHERE aggregate_id = $1`} {
		alter(t, shop, "search", sql, order)
	}
}

// freeze stops a process where it stands until it is thawed.
func freeze(t *testing.T, shop *demo.Stack, process string) (thaw func()) {
	t.Helper()
	pid := shop.PID(process)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it was stopped, so it still has this number
	t.Cleanup(thaw)
	return thaw
}

// shrink gives the stream bounds that it has nearly reached, and that no event
// can keep.
func shrink(t *testing.T, shop *demo.Stack) {
	t.Helper()
	js := stream(t, shop)
	s, err := js.Stream(t.Context(), natsbroker.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.MaxMsgSize = 64
	config.MaxBytes = int64(s.CachedInfo().State.Bytes * 11 / 10)
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

func deleteDurable(t *testing.T, shop *demo.Stack, durable string) {
	t.Helper()
	if err := stream(t, shop).DeleteConsumer(t.Context(), natsbroker.DefaultStream, durable); err != nil {
		t.Fatal(err)
	}
}

// moveAhead has a durable go on where the stream is not yet, which is how one
// stands after a replicated stream has lost messages.
func moveAhead(t *testing.T, shop *demo.Stack, durable string) {
	t.Helper()
	js := stream(t, shop)
	answer, err := js.Conn().RequestWithContext(t.Context(), "$JS.API.CONSUMER.RESET."+natsbroker.DefaultStream+"."+durable, []byte(`{"seq":1000000}`))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(answer.Data), `"error"`) {
		t.Fatalf("move %s: %s", durable, answer.Data)
	}
}

// crowd asks a service for more at once than its pool has connections, until
// it is told to stop.
func crowd(t *testing.T, url string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var visitors sync.WaitGroup
	for range 16 {
		visitors.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					return
				}
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_ = resp.Body.Close() // only that it was asked matters
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); visitors.Wait() })
	t.Cleanup(stop)
	return stop
}
