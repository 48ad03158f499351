package search

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"orderpaid/platform/auth/authtest"
)

func TestACustomerFindsHisOwnOrdersOnly(t *testing.T) {
	t.Parallel()
	f, issuer := newFixture(t), authtest.New(t)
	mine, theirs := newOrder(), newOrder()
	f.deliver(t, created(t, mine, "u-1", "Green tea"), created(t, theirs, "u-2", "Green tea"))
	h := f.service.Handler(issuer.Guard(1000))
	for path, want := range map[string]int{
		query():                               http.StatusOK,
		query("q", "tea"):                     http.StatusOK,
		query("q", "tea", "user_id", "u-1"):   http.StatusOK,
		query("q", "tea", "user_id", "u-2"):   http.StatusForbidden,
		query("state", "PENDING_PAYMENT"):     http.StatusOK,
		query("user_id", "u-2", "limit", "1"): http.StatusForbidden,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, issuer.Request(t, "u-1", http.MethodGet, path, ""))
		if w.Code != want {
			t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, want)
			continue
		}
		if want != http.StatusOK {
			continue
		}
		var answer searchAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Orders) != 1 || answer.Orders[0].OrderID != mine {
			t.Errorf("%s: got %+v, want the one order of u-1", path, answer.Orders)
		}
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, query(), nil)); w.Code != http.StatusUnauthorized {
		t.Errorf("without a token: got %d, want 401", w.Code)
	}
}
