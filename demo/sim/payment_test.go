package sim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A shop receives callbacks and answers what the test wants.
type shop struct {
	*httptest.Server

	mu       sync.Mutex
	received []received
	answers  []int // statuses of the first answers; after that 204
}

type received struct {
	id, timestamp, signature, body string
}

func newShop(t *testing.T, answers ...int) *shop {
	t.Helper()
	s := &shop{answers: answers}
	s.Server = httptest.NewServer(http.HandlerFunc(s.receive))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) receive(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := r.Header
	s.received = append(s.received, received{h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature"), string(body)})
	status := http.StatusNoContent
	if len(s.answers) > 0 {
		status, s.answers = s.answers[0], s.answers[1:]
	}
	w.WriteHeader(status)
}

// settled waits until the provider has no callback left to make, and returns
// the payment as the provider sees it and the callbacks as the shop saw them.
func (s *shop) settled(t *testing.T, w world, order string, callbacks int) (Payment, []received) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		var answer struct{ Payments []Payment }
		w.call(t, "GET", "/payments?order="+order, nil, &answer)
		last := answer.Payments[len(answer.Payments)-1]
		over := len(last.Callbacks) == callbacks
		for _, c := range last.Callbacks {
			over = over && (c.Done || c.GaveUp)
		}
		if over {
			s.mu.Lock()
			defer s.mu.Unlock()
			return last, s.received
		}
	}
	t.Fatal("callbacks are still outstanding")
	return Payment{}, nil
}

// verified checks a callback the way a shop does, without the code under test.
func verified(t *testing.T, c received) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(testSecret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	io.WriteString(mac, c.id+"."+c.timestamp+"."+c.body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	seconds, err := strconv.ParseInt(c.timestamp, 10, 64)
	fresh := err == nil && time.Since(time.Unix(seconds, 0)).Abs() < 5*time.Minute
	return fresh && strings.Contains(" "+c.signature+" ", " "+want+" ")
}

type payRequest struct {
	OrderID  string       `json:"order_id"`
	Amount   int64        `json:"amount"`
	Currency string       `json:"currency"`
	Exponent int          `json:"exponent"`
	Announce Announcement `json:"announce"`
}

func pay(t *testing.T, w world, how Announcement) Payment {
	t.Helper()
	var p Payment
	status := w.call(t, "POST", "/payments", payRequest{testOrder, 1990, "CNY", 2, how}, &p)
	if status != http.StatusCreated {
		t.Fatalf("pay: status %d", status)
	}
	return p
}

func TestAPaymentIsAnnouncedOnceAndSigned(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	w := start(t, s.URL)
	p := pay(t, w, Announcement{})
	_, got := s.settled(t, w, testOrder, 1)
	if len(got) != 1 || !verified(t, got[0]) {
		t.Fatalf("got %+v", got)
	}
	want := `"data":{"payment_id":"` + p.PaymentID + `","order_id":"` + testOrder + `","amount":1990,"currency":"CNY","exponent":2}}`
	if !strings.HasPrefix(got[0].body, `{"type":"payment.succeeded","timestamp":"`) || !strings.HasSuffix(got[0].body, want) {
		t.Errorf("got %s, want …%s", got[0].body, want)
	}
}

func TestCopiesSayTheSameUnderOneIDOrUnderMany(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]bool{"one": false, "many": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			w := start(t, s.URL)
			pay(t, w, Announcement{Copies: 20, FreshIDs: fresh, JitterMS: 20})
			_, got := s.settled(t, w, testOrder, 20)
			ids, bodies := map[string]bool{}, map[string]bool{}
			for _, c := range got {
				ids[c.id], bodies[c.body] = true, true
			}
			wantIDs := 1
			if fresh {
				wantIDs = 20
			}
			if len(got) != 20 || len(ids) != wantIDs || len(bodies) != 1 {
				t.Errorf("got %d callbacks, %d ids, %d bodies", len(got), len(ids), len(bodies))
			}
		})
	}
}

func TestACallbackIsRepeatedUntilItIsAccepted(t *testing.T) {
	t.Parallel()
	s := newShop(t, 500, 409)
	w := start(t, s.URL)
	pay(t, w, Announcement{})
	p, got := s.settled(t, w, testOrder, 1)
	if len(got) != 3 || p.Callbacks[0].Attempts != 3 || !p.Callbacks[0].Done || p.Callbacks[0].Status != 204 {
		t.Errorf("got %d requests and %+v", len(got), p.Callbacks[0])
	}
	for _, c := range got {
		if c.id != got[0].id || c.body != got[0].body || !verified(t, c) {
			t.Errorf("attempts differ: %+v and %+v", got[0], c)
		}
	}
}

func TestForgedCallbacksComeOnceAndDoNotVerify(t *testing.T) {
	t.Parallel()
	for _, signature := range []string{signedBad, signedMissing, signedStale} {
		t.Run(signature, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, 401)
			w := start(t, s.URL)
			pay(t, w, Announcement{Signature: signature})
			p, got := s.settled(t, w, testOrder, 1)
			if len(got) != 1 || verified(t, got[0]) || !p.Callbacks[0].GaveUp {
				t.Errorf("got %+v, then %+v", got, p.Callbacks)
			}
			if status := w.call(t, "POST", "/payments/"+p.PaymentID+"/callbacks", Announcement{}, nil); status != http.StatusCreated {
				t.Fatalf("announce again: status %d", status)
			}
			if _, got = s.settled(t, w, testOrder, 2); len(got) != 2 || !verified(t, got[1]) {
				t.Errorf("the true callback after it: got %+v", got)
			}
		})
	}
}

func TestARotatedKeySignsTwice(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	w := start(t, s.URL)
	pay(t, w, Announcement{Signature: signedRotated})
	_, got := s.settled(t, w, testOrder, 1)
	if len(strings.Fields(got[0].signature)) != 2 || !verified(t, got[0]) {
		t.Errorf("got %+v", got)
	}
}

func TestARefundNamesItsPayment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	w := start(t, s.URL)
	p := pay(t, w, Announcement{})
	s.settled(t, w, testOrder, 1)
	var refund Payment
	body := struct {
		Amount int64 `json:"amount"`
	}{500}
	if status := w.call(t, "POST", "/payments/"+p.PaymentID+"/refunds", body, &refund); status != http.StatusCreated {
		t.Fatalf("refund: status %d", status)
	}
	_, got := s.settled(t, w, testOrder, 1)
	want := `"data":{"payment_id":"` + p.PaymentID + `","refund_id":"` + refund.RefundID + `","order_id":"` + testOrder + `","amount":500,"currency":"CNY","exponent":2}}`
	if last := got[len(got)-1].body; !strings.HasPrefix(last, `{"type":"payment.refunded",`) || !strings.HasSuffix(last, want) {
		t.Errorf("got %s, want …%s", last, want)
	}
}

func TestAFailedPaymentSaysSo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	w := start(t, s.URL)
	body := map[string]any{"order_id": testOrder, "amount": 1990, "currency": "CNY", "exponent": 2, "failed": true}
	if status := w.call(t, "POST", "/payments", body, nil); status != http.StatusCreated {
		t.Fatalf("pay: status %d", status)
	}
	if _, got := s.settled(t, w, testOrder, 1); !strings.HasPrefix(got[0].body, `{"type":"payment.failed",`) {
		t.Errorf("got %s", got[0].body)
	}
}

func TestWishesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	for _, c := range []struct {
		path string
		body any
		want int
	}{
		{"/payments", payRequest{OrderID: "", Amount: 1}, 422},
		{"/payments", payRequest{OrderID: "o", Amount: -1}, 422},
		{"/payments", payRequest{OrderID: "o", Announce: Announcement{Copies: 101}}, 422},
		{"/payments", payRequest{OrderID: "o", Announce: Announcement{JitterMS: -1}}, 422},
		{"/payments", payRequest{OrderID: "o", Announce: Announcement{Signature: "x"}}, 422},
		{"/payments", "not an object", 400},
		{"/payments/pay_none/refunds", map[string]int{"amount": 1}, 404},
		{"/payments/pay_none/refunds", map[string]int{"amount": 0}, 422},
		{"/payments/pay_none/callbacks", Announcement{}, 404},
	} {
		if got := w.call(t, "POST", c.path, c.body, nil); got != c.want {
			t.Errorf("%s %+v: got %d, want %d", c.path, c.body, got, c.want)
		}
	}
	for path, want := range map[string]int{"/mails?limit=x": 422, "/mails?order_id=o": 400, "/payments?to=x": 400, "/payments?order=a&order=b": 400} {
		if got := w.call(t, "GET", path, nil, nil); got != want {
			t.Errorf("GET %s: got %d, want %d", path, got, want)
		}
	}
}
