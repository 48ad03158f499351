package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"
)

// C111: what is written to HEAD goes nowhere, so a stream would not learn that
// its reader has gone.
func TestAHeadOfAStreamHasNoStream(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a service was asked") }))
	s.public = true
	ended := make(chan *httptest.ResponseRecorder, 1)
	for _, path := range []string{"/live/stream", "/orders/" + newOrder() + "/stream"} {
		go func() {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodHead, path, nil))
			ended <- w
		}()
		select {
		case w := <-ended:
			if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != "text/event-stream" {
				t.Errorf("%s: got %d and %q", path, w.Code, got)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: a stream goes on that nobody reads", path)
		}
	}
}

var retryField = regexp.MustCompile(`(?m)^retry: (\d{4})$`)

// C112: a restart ends all streams at once, and the browsers come back by
// themselves. C119: a proxy that keeps what is small shows nothing of a stream.
func TestBrowsersDoNotAllComeBackAtOnceAndNoProxyKeepsTheirEvents(t *testing.T) {
	t.Parallel()
	s := newPages(t, orderIn("PAID")) // nothing more can happen to it: the stream ends after its first event
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	delays := map[string]bool{}
	for range 8 {
		resp, err := http.Get(server.URL + "/orders/" + newOrder() + "/stream")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		delay := retryField.FindSubmatch(body)
		if err != nil || delay == nil || resp.Header.Get("X-Accel-Buffering") != "no" {
			t.Fatalf("got %v, headers %v and\n%s", err, resp.Header, body)
		}
		delays[string(delay[1])] = true
	}
	if len(delays) < 2 {
		t.Errorf("all are to come back after %v", delays)
	}
}

// C128: as many streams as somebody likes to open would be as many questions a
// second.
func TestThereAreNoMoreStreamsThanAllowed(t *testing.T) {
	t.Parallel()
	s := newPages(t, orderIn("PAID"))
	s.streams = make(chan struct{}, 1)
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	status := func() int {
		resp, err := http.Get(server.URL + "/orders/" + newOrder() + "/stream")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp.StatusCode
	}
	s.streams <- struct{}{} // somebody reads
	if got := status(); got != http.StatusServiceUnavailable {
		t.Errorf("got %d for one stream too many, want 503", got)
	}
	<-s.streams
	for range 2 { // each gives its place back
		if got := status(); got != http.StatusOK {
			t.Errorf("got %d, want 200", got)
		}
	}
}
