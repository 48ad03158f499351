package httpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"orderpaid/platform/telemetry"
)

// spans and logs hold what all tests of this package leave behind. Tests run
// side by side: each finds its own by a trace id or a route of its own.
var (
	spans = tracetest.NewSpanRecorder()
	logs  syncBuffer
)

func TestMain(m *testing.M) {
	_, err := telemetry.Start(context.Background(), telemetry.Config{Service: "httpserver-test", LogLevel: slog.LevelDebug, LogTo: &logs})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	os.Exit(m.Run())
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// linesWith returns the log lines that contain text.
func (b *syncBuffer) linesWith(text string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []string
	for line := range strings.Lines(b.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// A server under test, on a port that the system chose.
type server struct {
	addr string
	stop context.CancelFunc // asks it to stop
	done <-chan error       // what serve returned
}

func startServer(t *testing.T, h http.Handler, lim limits) server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	finished := make(chan struct{})
	go func() {
		done <- serve(ctx, ln, h, lim)
		close(finished)
	}()
	t.Cleanup(func() {
		stop()
		<-finished
	})
	return server{addr: ln.Addr().String(), stop: stop, done: done}
}

// do sends one request over a connection of its own.
func (s server) do(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// problem reads the answer as a problem document.
func (a answer) problem(t *testing.T) problem {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("status %d with Content-Type %q, want application/problem+json; body %s", a.status, got, a.body)
	}
	var p problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != a.status || p.Title != http.StatusText(a.status) || p.Type != "about:blank" {
		t.Errorf("problem %s does not fit status %d", a.body, a.status)
	}
	return p
}
