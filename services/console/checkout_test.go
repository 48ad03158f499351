package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A till is an order service that sells one product, and notes what it is
// asked to place.
type till struct {
	http.Handler
	keys       []string
	totals     []string
	searchAway bool
}

func newTill(t *testing.T, answers ...http.HandlerFunc) *till {
	till := new(till)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/products/{sku}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"sku":"TEA-1","titles":{"en":"Tea"},"prices":[{"amount":1250,"currency":"CNY","exponent":2}]}`))
	})
	mux.HandleFunc("POST /v1/orders", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Expected json.RawMessage `json:"expected_total"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		till.keys, till.totals = append(till.keys, r.Header.Get("Idempotency-Key")), append(till.totals, string(asked.Expected))
		if len(till.keys) > len(answers) {
			t.Error("more orders were placed than the customer asked for")
			return
		}
		answers[len(till.keys)-1](w, r)
	})
	mux.HandleFunc("GET /v1/orders/search", func(w http.ResponseWriter, r *http.Request) {
		if till.searchAway {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"orders":[]}`))
	})
	till.Handler = mux
	return till
}

func placed(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"order_id":"ord_0190a3f0c1d27e3f8a4b5c6d7e8f9012"}`))
}

// noAnswer breaks off in the middle of the answer: before it, the client would
// try once more by itself.
func noAnswer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	w.WriteHeader(http.StatusCreated)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func keyReused(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusUnprocessableEntity)
	_, _ = w.Write([]byte(`{"status":422,"code":"idempotency_key_reused","detail":"the idempotency key stands for another request"}`))
}

var hidden = regexp.MustCompile(`<input type="hidden" name="(key|total|currency)" value="([^"]*)">`)

// press presses the button of the cart's page in a browser that keeps nothing,
// and returns the page that comes.
func press(t *testing.T, s *Service, page string) *httptest.ResponseRecorder {
	t.Helper()
	return checkout(s, formOf(t, page), oneTea)
}

// formOf returns what the button of the cart's page sends.
func formOf(t *testing.T, page string) url.Values {
	t.Helper()
	_, form, found := strings.Cut(page, `action="/checkout"`)
	if !found {
		t.Fatalf("the page has no button:\n%s", page)
	}
	fields := url.Values{}
	for _, field := range hidden.FindAllStringSubmatch(form, -1) {
		fields.Set(field[1], field[2])
	}
	return fields
}

func checkout(s *Service, form url.Values, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/checkout", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

var oneTea = &http.Cookie{Name: cartCookie, Value: url.QueryEscape("TEA-1*2")}

// C94: the answer to an order is lost, and the customer presses again.
func TestACheckoutWithoutAnAnswerIsPressedAgainForTheSameOrder(t *testing.T) {
	t.Parallel()
	till := newTill(t, noAnswer, placed)
	s := newPages(t, till)
	w := press(t, s, get(t, s, "/cart", oneTea).Body.String())
	if w.Code != http.StatusServiceUnavailable {
		t.Fatalf("got %d for an order without an answer", w.Code)
	}
	if w = press(t, s, w.Body.String()); w.Code != http.StatusSeeOther {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	if till.keys[0] != till.keys[1] {
		t.Errorf("the two attempts had the keys %q: they are two orders", till.keys)
	}
}

// The answer to an order is lost, and the customer looks at the orders first.
// They do not show it yet: search is a moment behind.
func TestOrdersThatDoNotShowItYetAreNoReasonForANewKey(t *testing.T) {
	t.Parallel()
	till := newTill(t, noAnswer, placed)
	b := browser{t, newPages(t, till), map[string]*http.Cookie{cartCookie: oneTea}}
	b.press(b.get("/cart"))
	b.get("/orders")
	if w := b.press(b.get("/cart")); w.Code != http.StatusSeeOther {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	if till.keys[0] != till.keys[1] {
		t.Errorf("the two attempts had the keys %q: they are two orders", till.keys)
	}
}

// The order is placed, and its answer is lost on the way to the browser, which
// has the cart still and looks at it anew.
func TestAnAnswerThatTheBrowserNeverGotIsNoReasonForANewKey(t *testing.T) {
	t.Parallel()
	till := newTill(t, placed, placed)
	b := browser{t, newPages(t, till), map[string]*http.Cookie{cartCookie: oneTea}}
	lost := checkout(b.s, formOf(t, b.get("/cart").Body.String()), slices.Collect(maps.Values(b.cookies))...)
	if lost.Code != http.StatusSeeOther {
		t.Fatalf("got %d: %s", lost.Code, lost.Body)
	}
	b.press(b.get("/cart"))
	if till.keys[0] != till.keys[1] {
		t.Errorf("the two attempts had the keys %q: they are two orders", till.keys)
	}
	b.cookies[cartCookie] = oneTea
	if next := formOf(t, b.get("/cart").Body.String()).Get("key"); "console-"+next == till.keys[1] {
		t.Errorf("after an answer the same again has the key %q: it cannot be ordered", next)
	}
}

// C94: the answer is lost, and a price moves before the customer presses again: the
// order that was placed is another one than what the page shows now.
func TestAfterACheckoutThatMayHaveOrderedThereIsNoNewKeyUntilTheOrdersAreSeen(t *testing.T) {
	t.Parallel()
	till := newTill(t, noAnswer, keyReused, placed)
	s := newPages(t, till)
	b := browser{t, s, map[string]*http.Cookie{cartCookie: oneTea}}
	b.press(b.get("/cart"))
	page := b.press(b.get("/cart")) // looked at anew, it is still the same attempt
	if till.keys[0] != till.keys[1] {
		t.Errorf("the two attempts had the keys %q: they are two orders", till.keys)
	}
	for what, page := range map[string]*httptest.ResponseRecorder{"the answer": page, "the cart": b.get("/cart"), "a page from before": b.send(url.Values{"key": {"ANOTHER"}})} {
		if body := page.Body.String(); strings.Contains(body, `action="/checkout"`) || !strings.Contains(body, `<a href="/orders">`) {
			t.Errorf("%s offers to order again, or does not say where the orders are:\n%s", what, body)
		}
	}
	till.searchAway = true
	b.get("/orders")
	if body := b.get("/cart").Body.String(); strings.Contains(body, `action="/checkout"`) {
		t.Error("the orders were not shown, and there is a new key")
	}
	till.searchAway = false
	b.get("/orders")
	if w := b.press(b.get("/cart")); w.Code != http.StatusSeeOther {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	if till.keys[1] == till.keys[2] {
		t.Errorf("the last attempt had the key %q: this cart can never be ordered", till.keys[2])
	}
}

// A browser carries cookies from page to page.
type browser struct {
	t       *testing.T
	s       *Service
	cookies map[string]*http.Cookie
}

func (b browser) get(path string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.keep(get(b.t, b.s, path, slices.Collect(maps.Values(b.cookies))...))
}

func (b browser) press(page *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.send(formOf(b.t, page.Body.String()))
}

func (b browser) send(form url.Values) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.keep(checkout(b.s, form, slices.Collect(maps.Values(b.cookies))...))
}

func (b browser) keep(w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	for _, c := range w.Result().Cookies() {
		b.cookies[c.Name] = c
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w
}

// C95: the price is another one by the time that the button is pressed.
func TestACheckoutSaysWhichTotalTheCustomerWasShown(t *testing.T) {
	t.Parallel()
	till := newTill(t, placed)
	s := newPages(t, till)
	press(t, s, get(t, s, "/cart", oneTea).Body.String())
	if got, want := till.totals[0], `{"amount":2500,"currency":"CNY"}`; got != want {
		t.Errorf("the order was placed with expected_total %q, want %s", got, want)
	}
}
