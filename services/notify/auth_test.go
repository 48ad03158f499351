package notify

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"orderpaid/platform/auth/authtest"
)

func TestACustomerSeesHisOwnContactAndMailsOnly(t *testing.T) {
	t.Parallel()
	f, issuer := newFixture(t), authtest.New(t)
	h := f.service.Handler(issuer.Guard(1000))
	const contact = `{"email": "a@b.example", "locale": "en"}`
	for _, request := range []struct{ method, path, body string }{
		{http.MethodPut, "/v1/users/u-1/contact", contact},
		{http.MethodGet, "/v1/users/u-1/contact", ""},
		{http.MethodGet, "/v1/users/u-1/notifications", ""},
	} {
		for _, asks := range []struct {
			user string
			want int
		}{{"u-1", http.StatusOK}, {"u-2", http.StatusNotFound}} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, issuer.Request(t, asks.user, request.method, request.path, request.body))
			if w.Code != asks.want {
				t.Errorf("%s asks for %s %s: got %d %s, want %d", asks.user, request.method, request.path, w.Code, w.Body, asks.want)
			}
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(request.method, request.path, nil)); w.Code != http.StatusUnauthorized {
			t.Errorf("without a token, %s: got %d, want 401", request.path, w.Code)
		}
	}
}
