package opsapi_test

import (
	"net/http"
	"strings"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// PostgreSQL refuses such texts, and that would look like a fault of the service.
func TestAQueryThatTheDatabaseCannotBeAskedIsRefusedWithACode(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	for path, names := range map[string]string{
		"/ops/outbox":       "event_id aggregate_id kind state since until before limit",
		"/ops/dead-letters": "consumer state code aggregate_type aggregate_id event_id after ids limit",
		"/ops/exceptions":   "state key after limit",
		"/ops/inbox":        "aggregate_id event_id",
		"/ops/evidence":     "key",
		"/ops/facts":        "since until after limit",
		"/ops/effects":      "since until after limit",
		"/ops/invariants":   "since",
		"/ops/actions":      "before limit",
		"/ops/doubts":       "after limit",
	} {
		for _, name := range strings.Fields(names) {
			for query, code := range map[string]string{
				name + "=%00": "bad_text", name + "=a%ff": "bad_text", name + "=%zz": "bad_query_string", name + "=1;x=1": "bad_query_string",
				name + "=1&" + name + "=2": "repeated_parameter",
			} {
				status, body := b.ask(t, viewer, "GET", path+"?"+query, "")
				if status != http.StatusBadRequest || !strings.Contains(body, code) {
					t.Errorf("%s?%s: got %d %s, want 400 %s", path, query, status, body, code)
				}
			}
		}
	}
}

func TestATimeOfAnotherEraIsRefusedWithACode(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	const late = "9999-12-31T23:59:59-23:59"
	for _, path := range []string{"/ops/outbox?until=", "/ops/facts?since=", "/ops/effects?since=", "/ops/invariants?since="} {
		if status, body := b.ask(t, viewer, "GET", path+late, ""); status != http.StatusBadRequest || !strings.Contains(body, "bad_time") {
			t.Errorf("%s: got %d %s, want 400 bad_time", path, status, body)
		}
	}
	status, body := b.ask(t, viewer, "POST", "/ops/replays/plan", `{"consumer":"writer","from":{"source":"outbox","since":"`+late+`"}}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "bad_time") {
		t.Errorf("replay: got %d %s, want 400 bad_time", status, body)
	}
}
