package alarms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/demo"
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

// sendAgain publishes an order's payment as another event of a given version,
// so that the broker cannot know it.
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
	envelope["event_id"] = json.RawMessage(`"` + uuid.Must(uuid.NewV7()).String() + `"`)
	envelope["aggregate_version"] = json.RawMessage(fmt.Sprint(version))
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
