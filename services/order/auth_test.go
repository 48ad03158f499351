package order

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"orderpaid/platform/auth/authtest"
)

// guarded returns the shop's API as it asks for tokens.
func (s *shop) guarded(t *testing.T, issuer *authtest.Issuer) http.Handler {
	t.Helper()
	verifier, err := NewVerifier([]string{"whsec_" + base64.StdEncoding.EncodeToString(testKey)})
	if err != nil {
		t.Fatal(err)
	}
	return s.service.Handler(verifier, issuer.Guard(1000))
}

func TestACustomerReachesHisOwnOrdersOnly(t *testing.T) {
	t.Parallel()
	s, issuer := newShop(t), authtest.New(t)
	h := s.guarded(t, issuer)
	order := s.placed(t)
	path := "/v1/orders/" + order.OrderID
	for _, tc := range []struct {
		what, user, method, path, body string
		want                           int
	}{
		{"his own order", order.UserID, http.MethodGet, path, "", http.StatusOK},
		{"another's order", "somebody", http.MethodGet, path, "", http.StatusNotFound},
		{"cancel another's order", "somebody", http.MethodPost, path + "/cancel", `{"reason":"spite"}`, http.StatusNotFound},
		{"order for another", "somebody", http.MethodPost, "/v1/orders", `{"user_id":"` + order.UserID + `","currency":"CNY","items":[{"sku":"X","quantity":1}]}`, http.StatusForbidden},
		{"what waits for a person", order.UserID, http.MethodGet, "/v1/payment-exceptions", "", http.StatusForbidden},
		{"cancel his own order", order.UserID, http.MethodPost, path + "/cancel", `{"reason":"changed my mind"}`, http.StatusOK},
	} {
		req := issuer.Request(t, tc.user, tc.method, tc.path, tc.body)
		req.Header.Set("Idempotency-Key", tc.what[:3])
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, req); w.Code != tc.want {
			t.Errorf("%s: got %d %s, want %d", tc.what, w.Code, w.Body, tc.want)
		}
	}
}

func TestWithoutATokenOnlyTheCatalogueAnswers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	h := s.guarded(t, authtest.New(t))
	for path, want := range map[string]int{
		"GET /v1/products":                  http.StatusOK,
		"GET /v1/orders/ord_1":              http.StatusUnauthorized,
		"POST /v1/orders":                   http.StatusUnauthorized,
		"POST /v1/orders/ord_1/cancel":      http.StatusUnauthorized,
		"GET /v1/payment-exceptions":        http.StatusUnauthorized,
		"POST /v1/webhooks/payments":        http.StatusUnauthorized, // for want of a signature
		"GET /ops/dead-letters":             http.StatusNotFound,     // on another listener
		"GET /metrics":                      http.StatusNotFound,
		"POST /ops/dead-letters/discard":    http.StatusNotFound,
		"POST /v1/payment-exceptions/retry": http.StatusNotFound,
	} {
		method, target, _ := strings.Cut(path, " ")
		req := httptest.NewRequest(method, target, strings.NewReader(`{}`))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, req); w.Code != want {
			t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
}
