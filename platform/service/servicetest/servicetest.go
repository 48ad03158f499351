// Package servicetest holds what the tests of every service begin and end with:
// an address, an event on the stream, and a service that runs until its test ends.
package servicetest

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/porttest"
)

// FreeAddr returns an address for a service, as [porttest.Free] finds it.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return porttest.Free(t)
}

// stopTimeout is longer than any service takes to stop.
const stopTimeout = 25 * time.Second

// Start runs a service until the test ends or stop is called. stop returns when
// the service has, and fails the test if it has not ended cleanly.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the service ended with %v", err)
			}
		case <-time.After(stopTimeout):
			t.Errorf("the service did not stop within %v", stopTimeout)
		}
	})
	t.Cleanup(stop)
	return stop
}

// AwaitReady returns when the service says that it is ready.
func AwaitReady(t testing.TB, opsAddr string) {
	t.Helper()
	Eventually(t, "the service is ready", func() bool { return Status("http://"+opsAddr+"/readyz") == http.StatusOK })
}

// Status returns the status of an answer, or 0 if there is none.
func Status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close() // only the status counts
	return resp.StatusCode
}

// Eventually asks until it is true, for at most 30 seconds.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for deadline := time.Now().Add(30 * time.Second); !is(); <-ticks.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// Publish puts an event on the stream, as a relay does.
func Publish(t testing.TB, natsURL string, kind messaging.Kind, event []byte) {
	t.Helper()
	var env messaging.Envelope
	if err := json.Unmarshal(event, &env); err != nil {
		t.Fatal(err)
	}
	broker, err := natsbroker.Connect(t.Context(), natsbroker.Config{URL: natsURL, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	receipts := broker.Publish(t.Context(), []messaging.Message{{
		ID: env.EventID, Key: env.AggregateID, Subject: kind.Subject(messaging.ShardOf(env.AggregateID)), Data: event,
	}})
	if err := receipts[0].Err; err != nil {
		t.Fatal(err)
	}
}
