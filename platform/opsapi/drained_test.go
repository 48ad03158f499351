package opsapi_test

import (
	"net/http"
	"strings"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// Whoever takes a service away asks first whether anything is left in it.
func TestAServiceIsDrainedWhenNothingIsStagedAndNothingHasFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	if status, body := b.ask(t, viewer, "GET", "/ops/drained", ""); status != http.StatusOK || !strings.Contains(body, `"drained":true`) {
		t.Errorf("got %d %s, want 200 with nothing unfinished", status, body)
	}
	b.stage(t, messaging.New("a", 1, changed{N: 1}))
	status, body := b.ask(t, viewer, "GET", "/ops/drained", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "not_drained") || !strings.Contains(body, "1 events are staged") {
		t.Errorf("got %d %s, want 503 with one event that is not published", status, body)
	}
}
