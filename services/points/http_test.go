package points

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"orderpaid/platform/auth"
)

func TestAnUnknownUserHasZero(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.balance(t, "nobody")
	if got.UserID != "nobody" || got.Balance != 0 || got.Overdrawn || time.Since(got.AsOf).Abs() > time.Minute {
		t.Errorf("got %+v", got)
	}
	if page := get[entriesView](t, f, "/v1/users/nobody/points/entries"); page.Entries == nil || len(page.Entries) != 0 {
		t.Errorf("entries: got %+v, want an empty list", page)
	}
}

func TestRequestsThatMakeNoSenseAreProblems(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/v1/users/a%20b/points", 400, "bad_user_id"},
		{"GET", "/v1/users/a%00b/points/entries", 400, "bad_user_id"},
		{"GET", "/v1/users/" + strings.Repeat("a", 65) + "/points", 400, "bad_user_id"},
		{"GET", "/v1/users/u1/points/entries?limit=0", 400, "bad_limit"},
		{"GET", "/v1/users/u1/points/entries?cursor=rubbish", 400, "bad_cursor"},
		{"GET", "/v1/users/u1", 404, "route_not_found"},
		{"POST", "/v1/users/u1/points", 405, "method_not_allowed"},
	} {
		w := httptest.NewRecorder()
		f.service.Handler(auth.Open()).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		var problem struct{ Code string }
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		if w.Code != c.status || problem.Code != c.code || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: got %d %q as %s, want %d %q", c.method, c.path, w.Code, problem.Code, w.Header().Get("Content-Type"), c.status, c.code)
		}
	}
}
