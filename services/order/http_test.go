package order

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"orderpaid/platform/messaging/messagingtest"
)

func TestCatalogueHasRealGoodsInThreeLanguagesAndCurrencies(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	seen := map[string]bool{}
	path, pages := "/v1/products?limit=50", 0
	for next := path; next != ""; pages++ {
		p := decode[page[productView]](t, s.do(t, "GET", next, ""))
		for _, product := range p.Items {
			if seen[product.SKU] || product.Titles.EN == "" || product.Titles.ZH == "" || product.Titles.JA == "" || len(product.Prices) != 3 {
				t.Errorf("got %+v, want each product once, with three titles and three prices", product)
			}
			seen[product.SKU] = true
		}
		next = ""
		if p.NextCursor != "" {
			next = path + "&cursor=" + p.NextCursor
		}
	}
	if got := len(seen); got < 200 || pages < 4 {
		t.Errorf("got %d products on %d pages, want at least 200 on at least 4", got, pages)
	}
}

func TestProductIsFoundByItsSKU(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := decode[productView](t, s.do(t, "GET", "/v1/products/"+backpack, ""))
	if got, want := p.Titles.ZH, "超轻量登山背包 38升"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := p.Prices[0].Formatted, "499.00 CNY"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, path := range []string{"/v1/products/NO-SUCH", "/v1/products/%00", "/v1/products/lower"} {
		if r := s.do(t, "GET", path, ""); r.code() != "product_not_found" {
			t.Errorf("%s: got %s, want product_not_found", path, r)
		}
	}
}

func TestNewOrderWaitsForItsPaymentAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.order(t, `{"user_id":"u_1","currency":"CNY","items":[{"sku":"OUT-PACK-38UL","quantity":2},{"sku":"COF-FILTER-100","quantity":3}],
		"expected_total":{"amount":105797,"currency":"CNY"}}`)
	if r.status != http.StatusCreated {
		t.Fatalf("got %s, want 201", r)
	}
	created := decode[orderView](t, r)
	o := s.get(t, created.OrderID)
	if o.State != StatePendingPayment || o.Version != 1 || o.Says != "Waiting for the payment of 1057.97 CNY." {
		t.Errorf("got %s, version %d, %q", o.State, o.Version, o.Says)
	}
	if got, want := o.Items[1].Total.Amount, int64(5997); got != want { // 3 × 19.99, exactly
		t.Errorf("line 2: got %d, want %d", got, want)
	}
	if len(o.FollowUps) != 0 || len(o.History) != 1 || o.History[0].What != "created" {
		t.Errorf("got follow-ups %v and history %v, want none and one", o.FollowUps, o.History)
	}
	ev := messagingtest.RequireStaged[OrderCreated](t, s.pool)
	if ev.AggregateVersion != 1 || ev.Data.Total.Amount != 105797 || ev.Data.Items[0].Titles.JA == "" || !ev.Data.CreatedAt.Equal(o.CreatedAt) {
		t.Errorf("got event %+v of order %+v", ev, o)
	}
}

// C07: a yen order is neither multiplied nor divided by a hundred.
func TestYenAreCountedInYen(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := decode[orderView](t, s.order(t, fmt.Sprintf(`{"user_id":"u_1","currency":"JPY","items":[{"sku":%q,"quantity":1}]}`, sencha)))
	if o.Total.Formatted != "1050 JPY" || o.Total.Exponent != 0 {
		t.Fatalf("got %+v, want 1050 JPY", o.Total)
	}
	if r := s.pay(t, o, "pay_1"); r.result().Result != ResultApplied {
		t.Fatalf("pay: got %s", r)
	}
	ev := messagingtest.RequireStaged[OrderPaid](t, s.pool)
	if ev.Data.Total != (eventMoney{1050, "JPY", 0}) || ev.Data.PointsDelta != 10 {
		t.Errorf("got %+v, want 1050 JPY for 10 points", ev.Data)
	}
}

func TestPriceThatMovedStopsTheOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	before := s.written(t)
	r := s.order(t, strings.Replace(oneBackpack, `"items"`, `"expected_total":{"amount":39900,"currency":"CNY"},"items"`, 1))
	if r.status != http.StatusConflict || r.code() != "price_changed" || !strings.Contains(string(r.body), "499.00 CNY") {
		t.Errorf("got %s, want 409 price_changed with the price of now", r)
	}
	if got := s.written(t); got != before {
		t.Errorf("got %d rows written, want none", got-before)
	}
}

func TestOrderKeepsThePricesOfItsMoment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.exec(t, `UPDATE product_price SET amount = amount * 2`)
	s.exec(t, `UPDATE product SET title_en = 'renamed'`)
	if got := s.get(t, o.OrderID); got.Total != o.Total || got.Items[0].Titles != o.Items[0].Titles {
		t.Errorf("got %+v, want %+v", got, o)
	}
	if r := s.pay(t, o, "pay_1"); r.result().Result != ResultApplied {
		t.Errorf("pay the old price: got %s, want applied", r)
	}
}

func TestCancelledOrderStaysCancelled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	first := s.cancel(t, o.OrderID)
	if got := decode[orderView](t, first); got.State != StateCancelled || got.Version != 2 || got.CancelReason != "changed my mind" {
		t.Errorf("got %s, want it cancelled in version 2", first)
	}
	again := s.do(t, "POST", "/v1/orders/"+o.OrderID+"/cancel", `{"reason":"another reason"}`)
	if string(again.body) != string(first.body) {
		t.Errorf("cancel again: got %s, want the same as before: %s", again, first)
	}
	ev := messagingtest.RequireStaged[OrderCancelled](t, s.pool)
	if ev.AggregateVersion != 2 || ev.Data.Reason != "changed my mind" {
		t.Errorf("got event %+v", ev)
	}
}

func TestPaidOrderIsNotCancelled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.pay(t, o, "pay_1")
	if r := s.cancel(t, o.OrderID); r.status != http.StatusConflict || r.code() != "order_paid" {
		t.Errorf("got %s, want 409 order_paid", r)
	}
	if got := s.get(t, o.OrderID).State; got != StatePaid {
		t.Errorf("got %s, want PAID", got)
	}
}

func TestOrderThatDoesNotExistIsNotFound(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, id := range []string{"ord_01932f4e5b8c7d3a9e1f60718293a4b5", "1", "%00", "ord_01932F4E5B8C7D3A9E1F60718293A4B5"} {
		if r := s.do(t, "GET", "/v1/orders/"+id, ""); r.status != http.StatusNotFound || r.code() != "order_not_found" {
			t.Errorf("get %s: got %s, want 404 order_not_found", id, r)
		}
		if r := s.cancel(t, id); r.status != http.StatusNotFound || r.code() != "order_not_found" {
			t.Errorf("cancel %s: got %s, want 404 order_not_found", id, r)
		}
	}
}
