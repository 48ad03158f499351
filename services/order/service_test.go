package order

import (
	"strings"
	"testing"
	"time"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

// C15: the same key with another body is refused, and the first result stays.
func TestIdempotencyKeyStandsForOneRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	send := func(body string) reply { return s.do(t, "POST", "/v1/orders", body, "Idempotency-Key", "key-1") }
	first := send(oneBackpack)
	if first.status != 201 {
		t.Fatalf("got %s, want 201", first)
	}
	spelledAnew := "{ \"items\":[{\"quantity\":1,\"sku\":\"OUT-PACK-38\\u0055L\"}],\n\t\"currency\":\"CNY\", \"user_id\":\"u_1\" }"
	for _, body := range []string{oneBackpack, spelledAnew} {
		again := send(body)
		if again.status != 201 || string(again.body) != string(first.body) || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("got %s, want the first answer: %s", again, first)
		}
	}
	if r := send(strings.Replace(oneBackpack, `"quantity":1`, `"quantity":2`, 1)); r.status != 422 || r.code() != "idempotency_key_reused" {
		t.Errorf("another quantity: got %s, want 422 idempotency_key_reused", r)
	}
	if got := s.count(t, "orders"); got != 1 {
		t.Errorf("got %d orders, want 1", got)
	}
	if r := send(oneBackpack); string(r.body) != string(first.body) {
		t.Errorf("after the refusals: got %s, want the first answer", r)
	}
}

// Whoever guesses another customer's key must not be able to use it up, nor
// learn from an answer that it is in use.
func TestAKeyIsItsCustomersOwn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	send := func(body string) reply { return s.do(t, "POST", "/v1/orders", body, "Idempotency-Key", "key-1") }
	mine, his := send(oneBackpack), send(strings.Replace(oneBackpack, "u_1", "u_2", 1))
	if mine.status != 201 || his.status != 201 || decode[orderView](t, mine).OrderID == decode[orderView](t, his).OrderID {
		t.Errorf("got %s and %s, want an order each", mine, his)
	}
	if again := send(oneBackpack); string(again.body) != string(mine.body) {
		t.Errorf("got %s, want the first answer", again)
	}
	if got := s.count(t, "orders"); got != 2 {
		t.Errorf("got %d orders, want 2", got)
	}
}

func TestStoredAnswerOutlivesWhatBecameOfTheOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", "key-1")
	s.pay(t, decode[orderView](t, first), "pay_1")
	again := s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", "key-1")
	if string(again.body) != string(first.body) {
		t.Errorf("got %s, want the first answer: %s", again, first)
	}
}

// C87: twins with one key.
func TestTwinRequestsAreOneOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	replies := make([]reply, 20)
	atOnce(len(replies), func(i int) {
		replies[i] = s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", "twin")
	})
	for _, r := range replies {
		if r.status != 201 || string(r.body) != string(replies[0].body) {
			t.Errorf("got %s, want the answer that all get: %s", r, replies[0])
		}
	}
	if got := s.count(t, "orders"); got != 1 {
		t.Errorf("got %d orders, want 1", got)
	}
	if got := s.count(t, "message_outbox"); got != 1 {
		t.Errorf("got %d events, want 1", got)
	}
}

// C87: the twin that gives up waiting learns that it may ask again.
func TestTwinThatWaitsTooLongIsTold(t *testing.T) {
	t.Parallel()
	owner := pgtest.New(t, "order")
	pool, err := postgres.Open(t.Context(), owner.Config().ConnString(), postgres.Config{LockTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newShopOn(t, pool, ServiceConfig{})
	tx, err := owner.Begin(t.Context()) // the first request, in the middle of its transaction
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), sqlClaimKey, placeOrderKeys("u_1"), "slow", []byte("hash")); err != nil {
		t.Fatal(err)
	}
	if r := s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", "slow"); r.status != 409 || r.code() != "idempotency_key_in_use" {
		t.Errorf("got %s, want 409 idempotency_key_in_use", r)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", "slow"); r.status != 201 {
		t.Errorf("after the first was rolled back: got %s, want 201", r)
	}
}

func TestRefusedOrderLeavesItsKeyFree(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	body := strings.Replace(oneBackpack, "OUT-PACK-38UL", "NEW-THING", 1)
	if r := s.do(t, "POST", "/v1/orders", body, "Idempotency-Key", "early"); r.code() != "unknown_sku" {
		t.Fatalf("got %s, want unknown_sku", r)
	}
	s.exec(t, `INSERT INTO product VALUES ('NEW-THING', 'New', '新', '新')`)
	s.exec(t, `INSERT INTO product_price VALUES ('NEW-THING', 'CNY', 100)`)
	if r := s.do(t, "POST", "/v1/orders", body, "Idempotency-Key", "early"); r.status != 201 {
		t.Errorf("got %s, want 201", r)
	}
}

// C19: no use case needs a second connection, so a pool smaller than the
// number of requests makes them wait and not hang.
func TestManyRequestsOnFewConnectionsAllEnd(t *testing.T) {
	t.Parallel()
	owner := pgtest.New(t, "order")
	pool, err := postgres.Open(t.Context(), owner.Config().ConnString(), postgres.Config{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newShopOn(t, pool, ServiceConfig{})
	placed := make([]reply, 50)
	atOnce(len(placed), func(i int) { placed[i] = s.order(t, oneBackpack) })
	var orders []orderView
	for _, r := range placed {
		orders = append(orders, decode[orderView](t, r))
	}
	atOnce(len(orders), func(i int) {
		if r := s.pay(t, orders[i], "pay_"+orders[i].OrderID); r.result().Result != ResultApplied {
			t.Errorf("got %s, want applied", r)
		}
	})
	if got, want := s.count(t, "orders WHERE state = 'PAID'"), len(orders); got != want {
		t.Errorf("got %d paid orders, want %d", got, want)
	}
}
