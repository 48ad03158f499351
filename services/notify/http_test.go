package notify

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestAContactIsShownMasked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, body := range []string{`{"email":"first@mail.example","locale":"en"}`, `{"email":"jo@mail.example","locale":"zh"}`} {
		if status := f.request(t, "PUT", "/v1/users/u1/contact", body, nil); status != http.StatusOK {
			t.Fatalf("put: status %d", status)
		}
	}
	var got contactView
	f.request(t, "GET", "/v1/users/u1/contact", "", &got)
	if want := (contactView{"u1", "j***@mail.example", Chinese}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if c, err := f.service.Contact(t.Context(), "u1"); err != nil || c.Email != "jo@mail.example" {
		t.Errorf("stored: %+v, %v", c, err)
	}
}

func TestRequestsThatMakeNoSenseAreProblems(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", "/v1/users/u1/contact", "", 404, "contact_not_found"},
		{"PUT", "/v1/users/a%20b/contact", `{"email":"jo@mail.example","locale":"en"}`, 400, "bad_user_id"},
		{"PUT", "/v1/users/u1/contact", `{"email":"jo","locale":"en"}`, 422, "bad_email"},
		{"PUT", "/v1/users/u1/contact", `{"email":"jo@mail.example\r\nBcc: x@mail.example","locale":"en"}`, 422, "bad_email"},
		{"PUT", "/v1/users/u1/contact", `{"email":"jo@mail.example","locale":"de"}`, 422, "bad_locale"},
		{"PUT", "/v1/users/u1/contact", `{"email":"jo@mail.example","locale":"en","name":"Jo"}`, 400, "unknown_field"},
		{"PUT", "/v1/users/u1/contact", `{"email":1,"locale":"en"}`, 400, "bad_type"},
		{"PUT", "/v1/users/u1/contact", `{"email":"jo\u0000@mail.example","locale":"en"}`, 400, "bad_text"},
		{"PUT", "/v1/users/u1/contact", `{`, 400, "malformed_json"},
		{"GET", "/v1/users/u1/notifications?limit=101", "", 400, "bad_limit"},
		{"GET", "/v1/users/u1/notifications?cursor=rubbish", "", 400, "bad_cursor"},
		{"GET", "/v1/users/" + strings.Repeat("a", 65) + "/notifications", "", 400, "bad_user_id"},
	} {
		var problem struct{ Code, Detail string }
		status := f.request(t, c.method, c.path, c.body, &problem)
		if status != c.status || problem.Code != c.code {
			t.Errorf("%s %s %s: got %d %q, want %d %q", c.method, c.path, c.body, status, problem.Code, c.status, c.code)
		}
		if strings.Contains(problem.Detail, "Bcc") {
			t.Errorf("%s: the answer repeats what was sent: %s", c.body, problem.Detail)
		}
	}
	if got := f.count(t, `SELECT count(*) FROM contact`); got != 0 {
		t.Errorf("%d contacts were written", got)
	}
}

func TestNotificationsAreReadNewestFirstAPageAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var want []string
	for range 5 {
		order := newOrder()
		f.deliver(t, paid(t, order, "u1"), paid(t, newOrder(), "u2"))
		want = append([]string{order}, want...)
	}
	var got []string
	for cursor, more := "", true; more; more = cursor != "" {
		var page notificationsView
		f.request(t, "GET", "/v1/users/u1/notifications?limit=2&cursor="+cursor, "", &page)
		for _, n := range page.Notifications {
			got = append(got, n.OrderID)
			if n.State != Queued || n.NextAttemptAt == nil || n.Channel != "email" {
				t.Errorf("got %+v", n)
			}
		}
		cursor = page.NextCursor
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var none notificationsView
	if f.request(t, "GET", "/v1/users/nobody/notifications", "", &none); none.Notifications == nil || len(none.Notifications) != 0 {
		t.Errorf("of a user without any: got %+v, want an empty list", none)
	}
}
