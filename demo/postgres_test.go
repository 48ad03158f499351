package demo

import (
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/pgserver"
)

// notices collects what a person would be told.
type notices struct {
	mu    sync.Mutex
	lines []string
}

func (n *notices) tell(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notices) heard(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Contains(strings.Join(n.lines, "\n"), what)
}

func TestPostgreSQLThatIsKilledIsStartedAgainWithItsData(t *testing.T) {
	t.Parallel()
	dir, told := t.TempDir(), new(notices)
	server, err := StartPostgres(t.Context(), "..", pgserver.Config{Dir: filepath.Join(dir, "postgres"), SharedBuffersMB: 16, MaxConnections: 20})
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := NewSupervisor(filepath.Join(dir, "log"), told.tell)
	if err != nil {
		t.Fatal(err)
	}
	s := &Stack{Supervisor: supervisor, postgres: server, cfg: StackConfig{Notice: told.tell}}
	s.letGo = s.keepPostgres(server)
	t.Cleanup(func() {
		if err := s.Down(); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `CREATE TABLE kept AS SELECT 1 AS n`); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Kill(server.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for !told.heard("PostgreSQL is process") {
		select {
		case err := <-s.Failed():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is not started again; told: %q", told.lines)
		}
	}
	again, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close(t.Context())
	var n int
	if err := again.QueryRow(t.Context(), `SELECT n FROM kept`).Scan(&n); err != nil || n != 1 {
		t.Errorf("got %d, %v, want the row that was committed", n, err)
	}
}
