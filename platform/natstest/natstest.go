// Package natstest runs a real nats-server inside the test process: JetStream
// on disk, every acknowledged message synced, a port of its own. It is the
// server that the product runs with, so that what a test sees is what a
// deployment sees.
//
// It cannot be killed without its test; crashes of the server are tested with
// child processes (see e2e).
package natstest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Option changes the server's options before it starts, for example to lower
// its maximum payload or to add users.
type Option func(*server.Options)

// A Server is one nats-server. It ends with its test.
type Server struct {
	options *server.Options // with the port that the first start was given
	running *server.Server
}

// startTimeout bounds the start. Recovering a test's store takes milliseconds;
// the rest is patience with a busy machine.
const startTimeout = 20 * time.Second

// New starts a server that keeps its streams in a temporary folder of t.
func New(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := &Server{options: defaults(t)}
	for _, option := range options {
		option(s.options)
	}
	s.start(t)
	t.Cleanup(s.Stop)
	return s
}

func defaults(t testing.TB) *server.Options {
	return &server.Options{
		ServerName: "natstest",
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   t.TempDir(),
		SyncAlways: true, // an acknowledgement that a power cut takes back is none
		NoSigs:     true, // the signals belong to the test binary
		NoLog:      true,
		// Fixed, because the defaults are shares of this machine's free disk and memory.
		JetStreamMaxStore:  16 << 30,
		JetStreamMaxMemory: 256 << 20,
	}
}

// URL returns the address that clients connect to; it survives a restart.
func (s *Server) URL() string { return s.running.ClientURL() }

// Stop ends the server and returns when its store is closed. Stopping twice
// is allowed.
func (s *Server) Stop() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// Restart stops the server, if it still runs, and starts it again on the same
// port with the same store.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	s.start(t)
}

// LoseMessages restarts servers as if their disks had lost the messages of all
// streams, as after a power cut. What the durables remember is still there. Of
// a cluster, name all: from any other they would have the messages again.
func LoseMessages(t testing.TB, servers ...*Server) {
	t.Helper()
	for _, s := range servers {
		s.Stop()
	}
	for _, s := range servers {
		if err := s.forget(); err != nil {
			t.Fatalf("lose messages: %v", err)
		}
	}
	for _, s := range servers {
		s.start(t)
	}
}

func (s *Server) forget() error {
	store := filepath.Join(s.options.StoreDir, "jetstream", "*")
	folders, err := filepath.Glob(filepath.Join(store, "streams", "*", "msgs"))
	if err != nil || len(folders) == 0 {
		return errors.Join(err, errors.New("there are no folders of messages"))
	}
	logs, err := filepath.Glob(filepath.Join(store, "_js_", "S-*")) // what the servers of a cluster agree on for a stream
	for _, folder := range append(folders, logs...) {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}

// DeleteDurable deletes a durable of a stream behind everybody's back.
func (s *Server) DeleteDurable(t testing.TB, stream, durable string) {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		err = js.DeleteConsumer(t.Context(), stream, durable)
	}
	if err != nil {
		t.Fatalf("delete durable %s: %v", durable, err)
	}
}

// MoveDurable has a durable go on at a sequence, which the stream need not have
// reached: as after a replicated stream has lost messages.
func (s *Server) MoveDurable(t testing.TB, stream, durable string, seq uint64) {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer nc.Close()
	answer, err := nc.Request("$JS.API.CONSUMER.RESET."+stream+"."+durable, fmt.Appendf(nil, `{"seq":%d}`, seq), startTimeout)
	if err == nil && bytes.Contains(answer.Data, []byte(`"error"`)) {
		err = errors.New(string(answer.Data))
	}
	if err != nil {
		t.Fatalf("move durable %s: %v", durable, err)
	}
}

func (s *Server) start(t testing.TB) {
	t.Helper()
	running, err := server.NewServer(s.options.Clone()) // it changes what it is given
	if err != nil {
		t.Fatalf("create nats-server: %v", err)
	}
	s.running = running
	go running.Start() // WaitForShutdown, in Stop, waits for all that it starts
	if !running.ReadyForConnections(startTimeout) {
		t.Fatalf("nats-server is not ready after %v", startTimeout)
	}
	s.options.Port = running.Addr().(*net.TCPAddr).Port
}
