package order

import (
	"fmt"
	"strings"
	"testing"
)

// C01, C02, C06, C07, C09: what cannot become an order is refused before
// anything is written, and the code says why.
func TestBadOrdersAreRefusedAndLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(t, `INSERT INTO product VALUES ('DEAR', 'Dear', '贵', '高い'), ('EURO', 'Euro', '欧元', 'ユーロ')`)
	s.exec(t, `INSERT INTO product_price VALUES ('DEAR', 'CNY', 9223372036854775807), ('EURO', 'EUR', 100)`)
	before := s.written(t)
	items := func(items string) string { return `{"user_id":"u_1","currency":"CNY","items":[` + items + `]}` }
	quantity := func(q string) string { return items(`{"sku":"OUT-PACK-38UL","quantity":` + q + `}`) }
	total := func(amount string) string {
		return strings.Replace(oneBackpack, `"items"`, `"expected_total":{"amount":`+amount+`,"currency":"CNY"},"items"`, 1)
	}
	user := func(user string) string { return strings.Replace(oneBackpack, "u_1", user, 1) }
	for _, c := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"nothing", "", 400, "empty_body"},
		{"not JSON", "<html>", 400, "malformed_json"},
		{"half of it", oneBackpack[:40], 400, "malformed_json"},
		{"two documents", oneBackpack + oneBackpack, 400, "malformed_json"},
		{"an array", "[" + oneBackpack + "]", 400, "bad_type"},
		{"unknown field", strings.Replace(oneBackpack, `"items"`, `"discount":10,"items"`, 1), 400, "unknown_field"},
		{"a price", items(`{"sku":"OUT-PACK-38UL","quantity":1,"unit_amount":1}`), 400, "unknown_field"},
		{"NUL escaped", user(`a\u0000b`), 400, "bad_text"},
		{"NUL raw", user("a\x00b"), 400, "bad_text"},
		{"invalid UTF-8", user("a\xffb"), 400, "bad_text"},
		{"lone surrogate", user(`\ud83d`), 400, "bad_text"},
		{"backslash text", user(`a\\u0000`), 422, "invalid_user_id"}, // legal text, and no id
		{"over 1 MiB", user(strings.Repeat("a", 1<<20)), 413, "body_too_large"},

		{"float total", total("499.00"), 400, "bad_type"},
		{"float total in exponent form", total("4.99e4"), 400, "bad_type"},
		{"total as text", total(`"49900"`), 400, "bad_type"},
		{"total beyond int64", total("9223372036854775808"), 400, "bad_type"},
		{"total that a double would round", total("9007199254740993"), 409, "price_changed"},
		{"total in another currency", strings.Replace(total("49900"), `49900,"currency":"CNY"`, `49900,"currency":"JPY"`, 1), 422, "currency_mismatch"},

		{"no user", strings.Replace(oneBackpack, `"user_id":"u_1",`, "", 1), 422, "invalid_user_id"},
		{"numeric user", strings.Replace(oneBackpack, `"u_1"`, "9007199254740993", 1), 400, "bad_type"},
		{"long user", user(strings.Repeat("a", 65)), 422, "invalid_user_id"},
		{"no currency", strings.Replace(oneBackpack, `"CNY"`, `""`, 1), 422, "unknown_currency"},
		{"unknown currency", strings.Replace(oneBackpack, "CNY", "XXX", 1), 422, "unknown_currency"},
		{"lower case currency", strings.Replace(oneBackpack, "CNY", "cny", 1), 422, "unknown_currency"},
		{"currency without prices", strings.Replace(oneBackpack, "CNY", "BHD", 1), 422, "not_sold_in_currency"},
		{"product without this currency", items(`{"sku":"EURO","quantity":1}`), 422, "not_sold_in_currency"},

		{"no items", items(""), 422, "no_items"},
		{"items null", `{"user_id":"u_1","currency":"CNY","items":null}`, 422, "no_items"},
		{"quantity zero", quantity("0"), 422, "invalid_quantity"},
		{"quantity negative", quantity("-1"), 422, "invalid_quantity"},
		{"quantity absurd", quantity("10001"), 422, "invalid_quantity"},
		{"quantity float", quantity("1.0"), 400, "bad_type"},
		{"quantity beyond int64", quantity("99999999999999999999"), 400, "bad_type"},
		{"quantity null", quantity("null"), 400, "bad_type"},
		{"unknown sku", items(`{"sku":"NO-SUCH-THING","quantity":1}`), 422, "unknown_sku"},
		{"10 KB sku", items(`{"sku":"` + strings.Repeat("A", 10<<10) + `","quantity":1}`), 422, "unknown_sku"},
		{"same sku twice", items(`{"sku":"OUT-PACK-38UL","quantity":1},{"sku":"OUT-PACK-38UL","quantity":1}`), 422, "duplicate_sku"},
		{"too many items", items(strings.Repeat(`{"sku":"OUT-PACK-38UL","quantity":1},`, 200) + `{"sku":"A","quantity":1}`), 422, "too_many_items"},
		{"overflow of a line", items(`{"sku":"DEAR","quantity":2}`), 422, "amount_overflow"},
		{"overflow of the sum", items(`{"sku":"DEAR","quantity":1},{"sku":"OUT-PACK-38UL","quantity":1}`), 422, "amount_overflow"},
	} {
		r := s.order(t, c.body)
		if r.status != c.status || r.code() != c.code {
			t.Errorf("%s: got %s, want %d %s", c.name, r, c.status, c.code)
		}
	}
	if got := s.written(t); got != before {
		t.Errorf("got %d rows written by refused orders, want none", got-before)
	}
}

// C09: keys are indexed, and an index row has an end.
func TestBadIdempotencyKeysAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if r := s.do(t, "POST", "/v1/orders", oneBackpack); r.code() != "idempotency_key_missing" {
		t.Errorf("no key: got %s, want idempotency_key_missing", r)
	}
	for name, key := range map[string]string{
		"10 KB": strings.Repeat("k", 10<<10), "201 bytes": strings.Repeat("k", 201), "empty": "", "blank inside": "a b", "not ASCII": "schlüssel",
	} {
		if r := s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", key); r.status != 400 || r.code() != "idempotency_key_invalid" {
			t.Errorf("%s: got %s, want 400 idempotency_key_invalid", name, r)
		}
	}
	if r := s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", "a", "Idempotency-Key", "b"); r.code() != "idempotency_key_invalid" {
		t.Errorf("two keys: got %s, want idempotency_key_invalid", r)
	}
	if got := s.count(t, "orders"); got != 0 {
		t.Errorf("got %d orders, want none", got)
	}
	if r := s.do(t, "POST", "/v1/orders", oneBackpack, "Idempotency-Key", strings.Repeat("k", 200)); r.status != 201 {
		t.Errorf("200 bytes: got %s, want 201", r)
	}
}

// C11: an order whose event the outbox would refuse is refused with it, and
// the next one goes through.
func TestOrderThatCannotBeAnnouncedIsNotPlaced(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	title := strings.Repeat("長", 200)
	var items []string
	for i := range MaxLines {
		sku := fmt.Sprintf("LONG-%d", i)
		s.exec(t, `INSERT INTO product VALUES ($1, $2, $2, $2)`, sku, title)
		s.exec(t, `INSERT INTO product_price VALUES ($1, 'CNY', 100)`, sku)
		items = append(items, fmt.Sprintf(`{"sku":%q,"quantity":1}`, sku))
	}
	body := func(n int) string {
		return `{"user_id":"u_1","currency":"CNY","items":[` + strings.Join(items[:n], ",") + `]}`
	}
	before := s.written(t)
	if r := s.order(t, body(MaxLines)); r.status != 422 || r.code() != "order_too_large" {
		t.Errorf("got %s, want 422 order_too_large", r)
	}
	if got := s.written(t); got != before {
		t.Errorf("got %d rows written, want none", got-before)
	}
	if r := s.order(t, body(MaxLines/2)); r.status != 201 {
		t.Errorf("half of it: got %s, want 201", r)
	}
}

func TestBadReasonsToCancelAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	for name, body := range map[string]string{
		"none": `{}`, "empty": `{"reason":""}`, "long": `{"reason":"` + strings.Repeat("长", 501) + `"}`, "two lines": `{"reason":"a\r\nBcc: b"}`,
	} {
		if r := s.do(t, "POST", "/v1/orders/"+o.OrderID+"/cancel", body); r.status != 422 || r.code() != "invalid_reason" {
			t.Errorf("%s: got %s, want 422 invalid_reason", name, r)
		}
	}
	r := s.do(t, "POST", "/v1/orders/"+o.OrderID+"/cancel", `{"reason":"`+strings.Repeat("长", 500)+`"}`)
	if r.status != 200 {
		t.Errorf("500 characters: got %s, want 200", r)
	}
}

func TestCursorsOfOtherListsAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	products := decode[page[productView]](t, s.do(t, "GET", "/v1/products?limit=1", ""))
	for _, path := range []string{
		"/v1/payment-exceptions?cursor=" + products.NextCursor, "/v1/products?cursor=rubbish", "/v1/products?limit=0", "/v1/products?limit=101",
	} {
		if r := s.do(t, "GET", path, ""); r.status != 400 || r.code() != "bad_cursor" && r.code() != "bad_limit" {
			t.Errorf("%s: got %s, want 400 bad_cursor or bad_limit", path, r)
		}
	}
}
