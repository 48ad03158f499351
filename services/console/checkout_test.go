package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// A till is an order service that sells one product, and notes what it is
// asked to place.
type till struct {
	http.Handler
	keys   []string
	totals []string
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

// press presses the button of the cart's page, and returns the page that comes.
func press(t *testing.T, s *Service, page string) *httptest.ResponseRecorder {
	t.Helper()
	_, form, found := strings.Cut(page, `action="/checkout"`)
	if !found {
		t.Fatalf("the page has no button:\n%s", page)
	}
	fields := url.Values{}
	for _, field := range hidden.FindAllStringSubmatch(form, -1) {
		fields.Set(field[1], field[2])
	}
	r := httptest.NewRequest(http.MethodPost, "/checkout", strings.NewReader(fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(oneTea)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

var oneTea = &http.Cookie{Name: cartCookie, Value: url.QueryEscape("TEA-1*2")}

// C94: the answer to an order is lost, and the customer presses again.
func TestACheckoutWithoutAnAnswerIsPressedAgainForTheSameOrder(t *testing.T) {
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

func TestACheckoutWhoseKeyStandsForAnotherOrderGetsANewOne(t *testing.T) {
	till := newTill(t, keyReused, placed)
	s := newPages(t, till)
	w := press(t, s, get(t, s, "/cart", oneTea).Body.String())
	if w = press(t, s, w.Body.String()); w.Code != http.StatusSeeOther {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	if till.keys[0] == till.keys[1] {
		t.Errorf("both attempts had the key %q: this cart can never be ordered", till.keys[0])
	}
}

// C95: the price is another one by the time that the button is pressed.
func TestACheckoutSaysWhichTotalTheCustomerWasShown(t *testing.T) {
	till := newTill(t, placed)
	s := newPages(t, till)
	press(t, s, get(t, s, "/cart", oneTea).Body.String())
	if got, want := till.totals[0], `{"amount":2500,"currency":"CNY"}`; got != want {
		t.Errorf("the order was placed with expected_total %q, want %s", got, want)
	}
}
