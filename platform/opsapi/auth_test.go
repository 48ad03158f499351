package opsapi_test

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"orderpaid/platform/auth/authtest"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// Every route, and the smallest role that may use it. A route that is not here
// fails the test: nobody adds one without saying who may use it.
var allowed = map[string]string{
	"GET /ops/service": "viewer", "GET /ops/backlog": "viewer", "GET /ops/drained": "viewer", "GET /ops/outbox": "any", "POST /ops/outbox/lookup": "viewer",
	"GET /ops/outbox/between": "peer", "POST /ops/outbox/payloads": "peer", "POST /ops/outbox/republish": "operator",
	"POST /ops/outbox/release": "operator", "GET /ops/inbox": "viewer", "POST /ops/inbox/lookup": "viewer",
	"GET /ops/dead-letters": "viewer", "GET /ops/dead-letters/groups": "viewer", "GET /ops/dead-letters/{id}": "viewer",
	"POST /ops/dead-letters/{id}/reveal": "operator", "POST /ops/dead-letters/{id}/fix": "operator",
	"POST /ops/dead-letters/retry": "operator", "POST /ops/dead-letters/discard": "operator",
	"GET /ops/exceptions": "viewer", "GET /ops/exceptions/{id}": "viewer", "POST /ops/exceptions/settle": "operator",
	"GET /ops/doubts": "viewer", "POST /ops/doubts/settle": "operator",
	"GET /ops/replays": "viewer", "GET /ops/replays/{id}": "viewer", "POST /ops/replays/plan": "viewer", "POST /ops/replays": "operator",
	"POST /ops/replays/{id}/start": "operator", "POST /ops/replays/{id}/stop": "operator",
	"POST /ops/replays/{id}/approve": "approver", "POST /ops/replays/{id}/refuse": "approver",
	"GET /ops/evidence": "viewer", "GET /ops/facts": "viewer", "GET /ops/effects": "viewer", "POST /ops/effects/lookup": "viewer",
	"GET /ops/invariants": "viewer", "GET /ops/actions": "viewer",
}

// mayUse says which tokens a role lets in.
var mayUse = map[string][]string{
	"any": {viewer, alice, bob, peer}, "viewer": {viewer, alice, bob}, "operator": {alice, bob}, "approver": {bob}, "peer": {peer, alice, bob},
}

// C59: there is no route that is open because nobody closed it.
func TestEveryRouteIsForItsRoleAndNobodyElse(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	issuer := authtest.New(t)
	service := issuer.Claims("console")
	service["scope"] = "customers"
	bearers := map[string]string{
		"nobody": "", "a stranger": "stranger-stranger-stranger", "viewer": viewer, "alice": alice, "bob": bob, "peer": peer,
		// Good tokens of the other door: neither a customer nor who acts for customers has anything to do here.
		"a customer": issuer.Sign(t, issuer.Claims("u-1")), "a service that acts for customers": issuer.Sign(t, service),
		// Who has read the list of those who may holds nothing that opens.
		"a hash": opsapi.HashedToken(hashed),
	}
	for _, route := range routes(t, b.api) {
		role, known := allowed[route]
		if !known {
			t.Errorf("nobody has said who may use %s", route)
			continue
		}
		method, path, _ := strings.Cut(route, " ")
		path = strings.ReplaceAll(path, "{id}", "1")
		for who, token := range bearers {
			status, body := b.ask(t, token, method, path, "{}")
			let := status != http.StatusUnauthorized && status != http.StatusForbidden
			want := false
			for _, one := range mayUse[role] {
				want = want || token == one
			}
			if let != want {
				t.Errorf("%s as %s: got %d %s, let in %v, want %v", route, who, status, body, let, want)
			}
			if token == "" && status != http.StatusUnauthorized {
				t.Errorf("%s without a token: got %d, want 401", route, status)
			}
		}
	}
}

// The list of a service may hold hashes only, so that it cannot act as those
// whom it lets in.
func TestAHashLetsInTheBearerOfItsToken(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	if status, body := b.ask(t, hashed, "GET", "/ops/backlog", ""); status != http.StatusOK {
		t.Errorf("its token: got %d %s, want 200", status, body)
	}
	if status, body := b.ask(t, opsapi.HashedToken(hashed), "GET", "/ops/backlog", ""); status != http.StatusUnauthorized {
		t.Errorf("the hash itself: got %d %s, want 401", status, body)
	}
}

// C59: a list of tokens that was forgotten opens nothing.
func TestWithoutTokensNobodyIsLetIn(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	closed, err := opsapi.New(opsapi.Config{Service: "closed", Pool: b.pool})
	if err != nil {
		t.Fatal(err)
	}
	b.serve(t, closed)
	for _, token := range []string{"", viewer, bob} {
		if status, body := b.ask(t, token, "GET", "/ops/backlog", ""); status != http.StatusForbidden || !strings.Contains(body, "ops_api_closed") {
			t.Errorf("got %d %s, want 403 ops_api_closed", status, body)
		}
	}
}

func TestTokensThatCouldBeGuessedOrMisreadStopTheStart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"alice:operator:short":                             "fewer than 16",
		"alice:king:0123456789abcdef":                      "none of viewer, operator, approver, peer",
		"alice-without-a-role":                             "not name:role:token",
		"a lice:operator:0123456789abcdef":                 "not name:role:token",
		"alice\tname:operator:0123456789abcdef":            "not name:role:token",
		":operator:0123456789abcdef":                       "not name:role:token",
		"alice:operator:0123456789abcdef x:viewer":         "token 2",
		"alice:operator:sha256:0123456789abcdef":           "64 hexadecimal digits",
		"alice:operator:sha256:" + strings.Repeat("g", 64): "64 hexadecimal digits",
	} {
		_, err := opsapi.ParseTokens(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%q: the error repeats the token: %v", text, err)
		}
	}
	if _, err := opsapi.ParseTokens(tokens); err != nil {
		t.Errorf("good ones: %v", err)
	}
}

func TestNothingIsDoneWithoutAReason(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	b.letters(t, 1)
	for path, body := range map[string]string{
		"/ops/dead-letters/1/reveal": "",
		"/ops/dead-letters/retry":    `{"ids":["1"]}`,
		"/ops/dead-letters/discard":  `{"ids":["1"],"reason":"  "}`,
		"/ops/dead-letters/1/fix":    `{"event":{}}`,
		"/ops/outbox/republish":      `{"event_ids":["01a22994-0940-7181-90b8-f2c28ae3ab98"]}`,
		"/ops/outbox/release":        `{"event_ids":["01a22994-0940-7181-90b8-f2c28ae3ab98"]}`,
		"/ops/exceptions/settle":     `{"ids":["1"]}`,
		"/ops/doubts/settle":         `{"id":"1","outcome":"happened"}`,
		"/ops/replays":               `{"consumer":"writer","from":{"source":"failures","failure_ids":["1"]}}`,
	} {
		if status, answer := b.ask(t, alice, "POST", path, body); status != http.StatusBadRequest || !strings.Contains(answer, "reason_missing") {
			t.Errorf("%s: got %d %s, want 400 reason_missing", path, status, answer)
		}
	}
	if got := b.count(t, `SELECT count(*) FROM operator_action`); got != 0 {
		t.Errorf("%d actions are recorded, want none", got)
	}
}

// Whoever reaches the port, with a token or without, must not fill the log.
func TestABurstOfRefusedRequestsIsALineASecondAndACount(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	logged := new(logBuffer)
	api, err := opsapi.New(opsapi.Config{Service: "bench", Pool: b.pool, Flags: opsapi.Flags{OpsTokens: tokens},
		Logger: slog.New(slog.NewJSONHandler(logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	b.serve(t, api)
	refusedFor := func(code string) int { return strings.Count(logged.String(), `"code":"`+code+`"`) }
	began := time.Now()
	for range 200 {
		b.ask(t, "stranger-stranger-stranger", "GET", "/ops/backlog", "")
		b.ask(t, viewer, "POST", "/ops/replays", "{}")
	}
	most := 1 + int(time.Since(began)/time.Second)
	for _, code := range []string{"unauthenticated", "forbidden"} {
		if got := refusedFor(code); got < 1 || got > most {
			t.Errorf("%s: got %d lines for 200 requests, want 1 to %d", code, got, most)
		}
	}
	eventually(t, "the next line tells how many were left out", func() bool {
		b.ask(t, "", "GET", "/ops/backlog", "")
		return regexp.MustCompile(`"code":"unauthenticated","left_out":[1-9]`).MatchString(logged.String())
	})
}
