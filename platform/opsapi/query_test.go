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

// Nothing is found in a state that does not exist, and an empty list would say
// that nothing is wrong.
func TestAWordThatIsNoneOfAParametersValuesIsRefusedAndTheValuesAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	for path, values := range map[string]string{
		"/ops/outbox":       "pending, publishing, published, failed",
		"/ops/dead-letters": "open, retrying, parked, unresolved, resolved, discarded",
		"/ops/exceptions":   "waiting, open, held, applied, settled",
	} {
		for _, given := range []string{"foo", "OPEN", "open,parked", "%20open"} {
			status, body := b.ask(t, viewer, "GET", path+"?state="+given, "")
			if status != http.StatusBadRequest || !strings.Contains(body, `"code":"bad_state"`) || !strings.Contains(body, "state is one of "+values) {
				t.Errorf("%s?state=%s: got %d %s, want 400 bad_state with %s", path, given, status, body, values)
			}
		}
		for _, value := range append(strings.Split(values, ", "), "") {
			if status, body := b.ask(t, viewer, "GET", path+"?state="+value, ""); status != http.StatusOK {
				t.Errorf("%s?state=%s: got %d %s, want 200", path, value, status, body)
			}
		}
	}
}

// What is not understood is not left out: a list without its filter shows what
// the filter was to hide.
func TestAQueryOfAListIsUnderstoodAsAWholeOrRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	for path, code := range map[string]string{
		"/ops/outbox?sate=failed":                            "unknown_parameter",
		"/ops/outbox?before=rubbish":                         "bad_id",
		"/ops/outbox?limit=abc":                              "bad_limit",
		"/ops/outbox?limit=0":                                "bad_limit",
		"/ops/outbox/between?aggregate_id=a&aggregate_typ=b": "unknown_parameter",
		"/ops/outbox/between?aggregate_id=a&after=abc":       "bad_number",
		"/ops/dead-letters?status=open":                      "unknown_parameter",
		"/ops/dead-letters?after=rubbish":                    "bad_number",
		"/ops/dead-letters?limit=-1":                         "bad_limit",
		"/ops/exceptions?order=ord_1":                        "unknown_parameter",
		"/ops/exceptions?after=-1":                           "bad_number",
		"/ops/doubts?state=open":                             "unknown_parameter",
		"/ops/doubts?limit=1001":                             "bad_limit",
		"/ops/inbox?aggregate_id=a&consumer=writer":          "unknown_parameter",
		"/ops/evidence?key=a&limit=1":                        "unknown_parameter",
		"/ops/facts?since=2026-03-01T14:02:00Z&untli=x":      "unknown_parameter",
		"/ops/effects?since=2026-03-01T14:02:00Z&limit=1e3":  "bad_limit",
		"/ops/invariants?until=2026-03-01T14:02:00Z":         "unknown_parameter",
		"/ops/actions?after=1":                               "unknown_parameter",
		"/ops/actions?before=rubbish":                        "bad_number",
		"/ops/actions?before=9223372036854775808&limit=1":    "bad_number",
	} {
		token := viewer
		if strings.Contains(path, "/between") {
			token = peer
		}
		status, body := b.ask(t, token, "GET", path, "")
		if status != http.StatusBadRequest || !strings.Contains(body, `"code":"`+code+`"`) {
			t.Errorf("%s: got %d %s, want 400 %s", path, status, body, code)
		}
	}
}

// A choice that is left out makes a replay larger than it was meant.
func TestAReplayIsRefusedWhereAPartOfItsChoiceWouldNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	for _, from := range []string{
		`"source":"failures","code":"broken","until":"2026-03-01T14:02:00Z"`,
		`"source":"failures","code":"broken","to_sequence":"7"`,
		`"source":"outbox","aggregate_id":"a","code":"broken"`,
		`"source":"outbox","since":"2026-03-01T14:02:00Z","from_sequence":"7"`,
		`"source":"outbox","event_ids":["01a22994-0940-7181-90b8-f2c28ae3ab98"],"kind":"ThingChanged.v1"`,
		`"source":"stream","from_sequence":"1","aggregate_id":"a"`,
		`"source":"stream","from_sequence":"1","failure_ids":["1"]`,
		`"source":"everywhere"`,
	} {
		status, body := b.ask(t, viewer, "POST", "/ops/replays/plan", `{"consumer":"writer","from":{`+from+`}}`)
		if status != http.StatusUnprocessableEntity || !strings.Contains(body, `"code":"bad_selection"`) {
			t.Errorf("%s: got %d %s, want 422 bad_selection", from, status, body)
		}
	}
}
