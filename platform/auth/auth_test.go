package auth_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/auth"
	"orderpaid/platform/auth/authtest"
	"orderpaid/platform/httpserver"
)

// shop has one route that shows a user's own things.
func shop(guard *auth.Guard) http.Handler {
	r := httpserver.NewRouter("test")
	r.With(guard.Customers, auth.Own("id")).Get("/v1/users/{id}", func(w http.ResponseWriter, r *http.Request) {
		httpserver.WriteJSON(w, http.StatusOK, chi.URLParam(r, "id"))
	})
	return r
}

func ask(h http.Handler, authorization ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodGet, "/v1/users/u-1", nil)
	for _, value := range authorization {
		req.Header.Add("Authorization", value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func TestOnlyAGoodTokenOfTheUserOpensTheDoor(t *testing.T) {
	t.Parallel()
	issuer, other := authtest.New(t), authtest.New(t)
	h := shop(issuer.Guard(1000))
	with := func(change func(map[string]any)) string {
		claims := issuer.Claims("u-1")
		change(claims)
		return "Bearer " + issuer.Sign(t, claims)
	}
	good := with(func(map[string]any) {})
	parts := strings.Split(good, ".")
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
	symmetric := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"test"}`)) + "." + parts[1] + "." + parts[2]
	for name, tc := range map[string]struct {
		authorization []string
		want          int
	}{
		"good":                     {[]string{good}, 200},
		"a service's":              {[]string{with(func(c map[string]any) { c["sub"], c["scope"] = "console", "mail customers" })}, 200},
		"no token":                 {nil, 401},
		"two tokens":               {[]string{good, good}, 401},
		"another scheme":           {[]string{"Basic dTE6cHc="}, 401},
		"an empty token":           {[]string{"Bearer "}, 401},
		"rubbish":                  {[]string{"Bearer a.b.c"}, 401},
		"another user's":           {[]string{with(func(c map[string]any) { c["sub"] = "u-2" })}, 404},
		"nobody's":                 {[]string{with(func(c map[string]any) { delete(c, "sub") })}, 401},
		"everybody's":              {[]string{with(func(c map[string]any) { c["sub"] = "*" })}, 401},
		"expired":                  {[]string{with(func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() })}, 401},
		"for another shop":         {[]string{with(func(c map[string]any) { c["aud"] = "elsewhere" })}, 401},
		"of another issuer's name": {[]string{with(func(c map[string]any) { c["iss"] = "http://elsewhere.example" })}, 401},
		"of another issuer's key":  {[]string{"Bearer " + other.Sign(t, issuer.Claims("u-1"))}, 401},
		"unsigned":                 {[]string{"Bearer " + unsigned}, 401},
		"signed with a shared key": {[]string{"Bearer " + symmetric}, 401},
		"with a changed signature": {[]string{good[:len(good)-8] + "AAAAAAAA"}, 401},
	} {
		w := ask(h, tc.authorization...)
		if w.Code != tc.want {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, tc.want)
		}
		if tc.want == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
	}
}

func TestIssuerThatIsAwayIsNoReasonToCallATokenBad(t *testing.T) {
	t.Parallel()
	issuer := authtest.New(t)
	token := "Bearer " + issuer.Sign(t, issuer.Claims("u-1"))
	h := shop(issuer.Guard(1000))
	issuer.Server.Close()
	if w := ask(h, token); w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d %s, want 503", w.Code, w.Body)
	}
}

func TestCustomerIsLimitedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	issuer := authtest.New(t)
	h := shop(issuer.Guard(1)) // ten in ten seconds
	token := "Bearer " + issuer.Sign(t, issuer.Claims("u-1"))
	limited := 0
	for range 25 {
		w := ask(h, token)
		if w.Code != http.StatusTooManyRequests {
			continue
		}
		limited++
		if seconds, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || seconds < 1 {
			t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
		}
	}
	if limited == 0 {
		t.Error("25 requests at once went through, with a limit of 10")
	}
	req := issuer.Request(t, "u-2", http.MethodGet, "/v1/users/u-2", "")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, req); w.Code != http.StatusOK {
		t.Errorf("another customer: got %d, want 200", w.Code)
	}
}

func TestWithoutAGuardNobodyMaySeeAnything(t *testing.T) {
	t.Parallel()
	if auth.May(t.Context(), "u-1") || auth.May(t.Context(), "") {
		t.Error("a request that no guard has seen may see something")
	}
	if user, limited := auth.Only(t.Context()); !limited || user != "" {
		t.Errorf("Only = %q, %v; want nobody", user, limited)
	}
	if w := ask(shop(&auth.Guard{})); w.Code != http.StatusUnauthorized {
		t.Errorf("the zero guard: got %d, want 401", w.Code)
	}
}

func TestIssuerThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	for name, issuer := range map[string]auth.Issuer{
		"no address":  {AuthIssuer: "shop", AuthAudience: "a", AuthRate: 1},
		"no audience": {AuthIssuer: "http://i.example", AuthRate: 1},
		"no rate":     {AuthIssuer: "http://i.example", AuthAudience: "a"},
	} {
		if _, err := issuer.Guard("127.0.0.1:8080"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// C59: a setting that was forgotten must not open the shop to a network.
func TestWithoutAnIssuerOnlyThisMachineIsServed(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.8.8.8:0": true, "[::1]:8080": true, "localhost:8080": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:8080": false, "shop.example:8080": false, "": false, "localhost": false,
	} {
		if _, err := (auth.Issuer{}).Guard(addr); (err == nil) != want {
			t.Errorf("%q: got %v, want served %v", addr, err, want)
		}
		if _, err := (auth.Issuer{AuthIssuer: "http://i.example", AuthAudience: "a", AuthRate: 1}).Guard(addr); err != nil {
			t.Errorf("%q with an issuer: got %v, want no error", addr, err)
		}
	}
}
