package httpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"orderpaid/platform/porttest"
)

// impatient are limits that a test can wait for.
func impatient() limits {
	lim := defaultLimits
	lim.readHeader, lim.read, lim.write, lim.idle = 200*time.Millisecond, 300*time.Millisecond, 400*time.Millisecond, 200*time.Millisecond
	return lim
}

func TestStopLetsRunningRequestsFinish(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	srv := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		if err := r.Context().Err(); err != nil {
			t.Errorf("the running request sees %v", err)
		}
		_, _ = io.WriteString(w, "finished")
	}), defaultLimits)

	answers := make(chan answer, 1)
	go func() { answers <- srv.do(t, "GET", "/", "") }()
	<-arrived
	srv.stop()
	untilRefused(t, srv.addr)
	select {
	case err := <-srv.done:
		t.Fatalf("the server returned (%v) while a request was running", err)
	default:
	}
	close(release)
	if got := <-answers; got.body != "finished" {
		t.Errorf("the running request got %+v, want its answer", got)
	}
	if err := <-srv.done; err != nil {
		t.Errorf("serve = %v, want nil after a clean stop", err)
	}
}

func TestStopCutsRequestsThatDoNotFinish(t *testing.T) {
	t.Parallel()
	lim := defaultLimits
	lim.drain = 100 * time.Millisecond
	arrived, cancelled := make(chan struct{}), make(chan struct{})
	srv := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(cancelled)
	}), lim)

	answers := make(chan answer, 1)
	go func() { answers <- srv.do(t, "GET", "/", "") }()
	<-arrived
	srv.stop()
	if err := <-srv.done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("serve = %v, want an error that says that the drain ran out of time", err)
	}
	<-cancelled
	if got := <-answers; got.err == nil {
		t.Errorf("the stuck request got %+v, want a cut connection", got)
	}
}

func TestAddressInUseIsNamed(t *testing.T) {
	t.Parallel()
	srv := startServer(t, http.NotFoundHandler(), defaultLimits)
	err := Run(t.Context(), srv.addr, http.NotFoundHandler())
	if err == nil || !strings.Contains(err.Error(), "listen on "+srv.addr) {
		t.Errorf("Run = %v, want an error that names %s", err, srv.addr)
	}
}

func TestRunServesUntilTheContextIsDone(t *testing.T) {
	t.Parallel()
	addr := porttest.Free(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, addr, shop()) }()
	conn := dial(t, addr)
	_, _ = io.WriteString(conn, "GET /v1/orders/1 HTTP/1.1\r\nHost: shop\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("answer = %v, %v; want 200", resp, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func TestClientThatSendsItsHeadersSlowlyIsCutOff(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), impatient())
	conn := dial(t, srv.addr)
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: shop\r\nX-Slow: ")
	untilCut(t, conn)
}

func TestClientThatSaysNothingMoreIsCutOff(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), impatient())
	conn := dial(t, srv.addr)
	_, _ = io.WriteString(conn, "GET /v1/orders/1 HTTP/1.1\r\nHost: shop\r\n\r\n")
	untilCut(t, conn)
}

func TestClientThatSendsItsBodySlowlyIsToldAndCutOff(t *testing.T) {
	t.Parallel()
	srv := startServer(t, readingHandler(), impatient())
	conn := dial(t, srv.addr)
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 100\r\n\r\n{\"name\":")
	answer := untilCut(t, conn)
	if !strings.HasPrefix(answer, "HTTP/1.1 408 ") || !strings.Contains(answer, `"code":"body_too_slow"`) {
		t.Errorf("answer = %q, want 408 body_too_slow", answer)
	}
}

func TestClientThatDoesNotReadItsAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	srv := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 1<<20)
		for {
			if _, err := w.Write(block); err != nil {
				failed <- err
				return
			}
		}
	}), impatient())
	conn := dial(t, srv.addr)
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
	select {
	case <-failed:
	case <-time.After(20 * time.Second):
		t.Error("the handler still waits for a client that does not read")
	}
}

func TestHeadersHaveALimit(t *testing.T) {
	t.Parallel()
	srv := startServer(t, shop(), defaultLimits)
	if got := srv.do(t, "GET", "/v1/orders/1", "", "X-Long", strings.Repeat("x", 24<<10)); got.status != 200 {
		t.Errorf("24 KiB of headers: %d, want 200", got.status)
	}
	if got := srv.do(t, "GET", "/v1/orders/1", "", "X-Long", strings.Repeat("x", 40<<10)); got.status != 431 {
		t.Errorf("40 KiB of headers: %d, want 431", got.status)
	}
}

// readingHandler reads a body and says what came of it.
func readingHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Name  string `json:"name"`
			Count int64  `json:"count"`
		}
		if err := ReadJSON(w, r, &body); err != nil {
			WriteError(w, r, err)
			return
		}
		WriteJSON(w, http.StatusOK, fmt.Sprintf("%d bytes, %d", len(body.Name), body.Count))
	})
}

// dial connects, and waits for a server that is just starting.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// untilCut returns everything that arrives until the server ends the connection.
func untilCut(t *testing.T, conn net.Conn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the connection is still open; it brought %q", text)
	}
	return string(text)
}

// untilRefused waits until nothing listens at addr any more.
func untilRefused(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return
		}
		_ = conn.Close()
	}
	t.Fatalf("%s still accepts connections", addr)
}

// exhausted is the listener of a process that has no file descriptor left for a
// while.
type exhausted struct {
	net.Listener
	left int
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// C144: no connection is accepted, and nobody is told why.
func TestAProcessWithoutFileDescriptorsSaysSoOnceAndRecovers(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	told := &toldListener{Listener: &exhausted{ln, 3}, log: slog.New(slog.NewTextHandler(&lines, nil))}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, told, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }), defaultLimits)
	}()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if res.Body.Close(); string(body) != "served" {
		t.Errorf("got %q, %v, want an answer once there are descriptors again", body, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := strings.Count(lines.String(), "too many open files"); got != 1 {
		t.Errorf("got %d lines for 3 failures, want 1:\n%s", got, lines.String())
	}
}
