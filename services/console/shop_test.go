package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// postCart presses "add" for a product in a browser with that cart, and returns
// what the next page says.
func postCart(t *testing.T, s *Service, cart string, form url.Values) (kept, notice string) {
	t.Helper()
	w := post(t, s, "/cart", form, &http.Cookie{Name: cartCookie, Value: url.QueryEscape(cart)})
	if w.Code != http.StatusSeeOther {
		t.Fatalf("got %d", w.Code)
	}
	r := &http.Request{Header: http.Header{}}
	for _, c := range w.Result().Cookies() {
		r.AddCookie(c)
	}
	return cookie(r, cartCookie), cookie(r, noticeCookie)
}

// C114: what does not go into the cart is not left out without a word.
func TestACartThatIsFullSaysSo(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.NotFoundHandler())
	full := strings.TrimSuffix(strings.Repeat("A-1*1.", maxLines), ".")
	for name, tt := range map[string]struct {
		cart         string
		form         url.Values
		kept, notice string
	}{
		"another product in a full cart": {full, url.Values{"sku": {"B-1"}}, full, "The cart is full: 20 different products fit into one order."},
		"the hundredth of a product":     {"A-1*99", url.Values{"sku": {"A-1"}}, "A-1*99", "More than 99 of one product do not fit into one order."},
		"a thousand of a product":        {"A-1*1", url.Values{"sku": {"A-1"}, "quantity": {"1000"}}, "A-1*99", "More than 99 of one product do not fit into one order."},
		"one more":                       {"A-1*1", url.Values{"sku": {"A-1"}}, "A-1*2", ""},
		"taken out":                      {"A-1*1", url.Values{"sku": {"A-1"}, "quantity": {"0"}}, "", ""},
	} {
		if kept, notice := postCart(t, s, tt.cart, tt.form); kept != tt.kept || notice != tt.notice {
			t.Errorf("%s: got %q and %q, want %q and %q", name, kept, notice, tt.kept, tt.notice)
		}
	}
}

// C118: an order service that is away has not stopped to sell anything.
func TestACartWhoseShopIsSilentDoesNotSayThatItsProductsAreGone(t *testing.T) {
	t.Parallel()
	gone := http.NotFoundHandler()
	silent := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for name, tt := range map[string]struct {
		shop        http.Handler
		says, never string
	}{
		"not sold any more": {gone, "Not sold in this currency", "order does not answer"},
		"silent":            {silent, "order does not answer", "Not sold in this currency"},
	} {
		body := get(t, newPages(t, tt.shop), "/cart", oneTea).Body.String()
		if !strings.Contains(body, tt.says) || strings.Contains(body, tt.never) {
			t.Errorf("%s: want %q and not %q in\n%s", name, tt.says, tt.never, body)
		}
	}
}

// orderIn answers for an order in that state, of which 3.00 were paid back.
func orderIn(state string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			panic(http.ErrAbortHandler) // nobody is to be asked for money
		}
		_, _ = w.Write([]byte(`{"state":"` + state + `","total":{"amount":1250,"currency":"CNY","exponent":2},
			"refunded_total":{"amount":300,"currency":"CNY","exponent":2}}`))
	})
}

// C115: whoever goes back to the page to pay at, or has it in a second tab.
func TestAnOrderThatIsPaidOrCancelledCannotBePaidAgain(t *testing.T) {
	t.Parallel()
	id := newOrder()
	for state, status := range map[string]int{"PENDING_PAYMENT": http.StatusOK, "PAID": http.StatusSeeOther, "CANCELLED": http.StatusSeeOther} {
		s := newPages(t, orderIn(state))
		if w := get(t, s, "/pay/"+id); w.Code != status {
			t.Errorf("%s: got %d for the page, want %d", state, w.Code, status)
		}
		if status == http.StatusOK {
			continue
		}
		w := post(t, s, "/pay/"+id, url.Values{"how": {"once"}})
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/orders/"+id {
			t.Errorf("%s: got %d to %q for the button, want to be shown the order", state, w.Code, w.Header().Get("Location"))
		}
	}
}

// C116: an order of which a part was paid back looked like any paid one.
func TestWhatWasPaidBackIsShownWithItsOrder(t *testing.T) {
	t.Parallel()
	s, id := newPages(t, orderIn("PAID")), newOrder()
	for _, page := range []string{"/orders/" + id, "/orders"} {
		body := get(t, s, page, &http.Cookie{Name: ordersCookie, Value: id}).Body.String()
		if !strings.Contains(body, "Paid back") || !strings.Contains(body, "CNY 3.00") {
			t.Errorf("%s does not say it:\n%s", page, body)
		}
	}
}

// C123: who has ordered often saw his newest orders alone.
func TestOlderOrdersAreOnTheNextPage(t *testing.T) {
	t.Parallel()
	kept, fresh, old := newOrder(), newOrder(), newOrder()
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch id, isOrder := strings.CutPrefix(r.URL.Path, "/v1/orders/ord_"); {
		case isOrder:
			_, _ = w.Write([]byte(`{"order_id":"ord_` + id + `","state":"PAID"}`))
		case r.URL.Query().Get("cursor") == "older":
			_, _ = w.Write([]byte(`{"orders":[{"order_id":"` + old + `"}]}`))
		default:
			_, _ = w.Write([]byte(`{"orders":[{"order_id":"` + fresh + `"}],"next_cursor":"older"}`))
		}
	}))
	for path, want := range map[string]struct{ shown, hidden []string }{
		"/orders":              {[]string{kept, fresh, `href="/orders?cursor=older"`}, []string{old}},
		"/orders?cursor=older": {[]string{old}, []string{kept, fresh, `href="/orders?cursor=`}},
	} {
		body := get(t, s, path, &http.Cookie{Name: ordersCookie, Value: kept}).Body.String()
		for _, text := range want.shown {
			if !strings.Contains(body, text) {
				t.Errorf("%s: %s is missing", path, text)
			}
		}
		for _, text := range want.hidden {
			if strings.Contains(body, text) {
				t.Errorf("%s: %s is there", path, text)
			}
		}
	}
}

// C123: as with orders, points and mails beyond the first page.
func TestOlderPointsAndMailsAreOnTheNextPage(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := map[string]string{"entries": "entries", "notifications": "notifications"}[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
		id, next := "ord_new_"+list, `,"next_cursor":"older_`+list+`"`
		if r.URL.Query().Get("cursor") == "older_"+list {
			id, next = "ord_old_"+list, ""
		}
		_, _ = w.Write([]byte(`{"` + list + `":[{"order_id":"` + id + `"}]` + next + `}`))
	}))
	for path, want := range map[string][]string{
		"/account":                           {"ord_new_entries", "ord_new_notifications", "?points=older_entries", "?mails=older_notifications"},
		"/account?points=older_entries":      {"ord_old_entries", "ord_new_notifications"},
		"/account?mails=older_notifications": {"ord_new_entries", "ord_old_notifications"},
	} {
		body := get(t, s, path).Body.String()
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s: %s is missing", path, text)
			}
		}
	}
}
