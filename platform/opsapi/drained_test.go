package opsapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// Whoever takes a service away asks first whether anything is left in it.
func TestAServiceIsDrainedWhenNothingIsStagedAndNothingHasFailed(t *testing.T) {
	t.Parallel()
	var mails atomic.Int64 // a service's own, which are not sent
	unfinished := func(context.Context) (int64, error) { return mails.Load(), nil }
	b := newBench(t, opsapi.Config{Own: opsapi.Own{Unfinished: unfinished}}, messaging.ConsumerConfig{})
	left := func(want string) {
		t.Helper()
		status, body := b.ask(t, viewer, "GET", "/ops/drained", "")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "not_drained") || !strings.Contains(body, want) {
			t.Errorf("got %d %s, want 503 with %q", status, body, want)
		}
	}
	drained := func() {
		t.Helper()
		if status, body := b.ask(t, viewer, "GET", "/ops/drained", ""); status != http.StatusOK || !strings.Contains(body, `"drained":true`) {
			t.Errorf("got %d %s, want 200 with nothing unfinished", status, body)
		}
	}
	drained()
	mails.Store(1)
	left("1 tasks of the service's own")
	mails.Store(0)
	drained()
	b.letters(t, 1)
	left("1 failures are not resolved")
	if _, err := b.client(t, alice).Discard(t.Context(), opsapi.FailureSelection{Consumer: "writer", Reason: "it was a test"}); err != nil {
		t.Fatal(err)
	}
	drained()
	b.stage(t, messaging.New("a", 1, changed{N: 1}))
	left("1 events are staged")
}
