package points

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"orderpaid/platform/auth/authtest"
)

func TestACustomerSeesHisOwnPointsOnly(t *testing.T) {
	t.Parallel()
	f, issuer := newFixture(t), authtest.New(t)
	f.deliver(t, paid(t, newOrder(), "u-1", 19))
	h := f.service.Handler(issuer.Guard(1000))
	for _, path := range []string{"/v1/users/u-1/points", "/v1/users/u-1/points/entries"} {
		for user, want := range map[string]int{"u-1": http.StatusOK, "u-2": http.StatusNotFound} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, issuer.Request(t, user, http.MethodGet, path, ""))
			if w.Code != want {
				t.Errorf("%s asks for %s: got %d, want %d", user, path, w.Code, want)
			}
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil)); w.Code != http.StatusUnauthorized {
			t.Errorf("without a token, %s: got %d, want 401", path, w.Code)
		}
	}
}
