package pgserver

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestDataSurvivesStopAndStart(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	srv := start(t, Config{Dir: dir, Unsafe: true})
	dsn := srv.DSN("postgres")
	query(t, dsn, `CREATE TABLE payment (id text)`, `INSERT INTO payment VALUES ('pay_1')`)
	if err := srv.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	select {
	case <-srv.Done():
	default:
		t.Error("Done is open after Stop")
	}

	again := start(t, Config{Dir: dir, Unsafe: true})
	if got, want := again.DSN("postgres"), dsn; got != want {
		t.Errorf("got address %s, want %s", got, want)
	}
	if got, want := query(t, dsn, `SELECT id FROM payment`), "pay_1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestServerListensOnItsSocketOnly(t *testing.T) {
	t.Parallel()
	srv := start(t, Config{Dir: newDir(t), MaxConnections: 33, SharedBuffersMB: 16, Settings: map[string]string{"work_mem": "7MB"}})
	got := query(t, srv.DSN("postgres"), `SELECT concat_ws(' ', current_setting('listen_addresses'), current_setting('max_connections'),
		current_setting('shared_buffers'), current_setting('fsync'), current_setting('work_mem'), current_setting('server_encoding'))`)
	if want := " 33 16MB on 7MB UTF8"; got != want {
		t.Errorf("got settings %q, want %q", got, want)
	}
	info, err := os.Stat(srv.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), os.FileMode(0o700); got != want {
		t.Errorf("got mode %v of the folder, want %v", got, want)
	}
}

// The locale must know that Ö is a letter, or lower() and trigrams do not.
func TestClusterKnowsUnicode(t *testing.T) {
	t.Parallel()
	srv := start(t, Config{Dir: newDir(t), Unsafe: true})
	if got, want := query(t, srv.DSN("postgres"), `SELECT lower('ÖÉЖ')`), "öéж"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCommittedRowSurvivesKill(t *testing.T) {
	t.Parallel()
	srv := start(t, Config{Dir: newDir(t), SharedBuffersMB: 16})
	query(t, srv.DSN("postgres"), `CREATE TABLE payment (id text)`)
	for i := range 3 {
		query(t, srv.DSN("postgres"), fmt.Sprintf(`INSERT INTO payment VALUES ('pay_%d')`, i))
		srv.Kill()
		if err := srv.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := query(t, srv.DSN("postgres"), `SELECT string_agg(id, ' ' ORDER BY id) FROM payment`), "pay_0 pay_1 pay_2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSecondServerInOneFolderIsRefused(t *testing.T) {
	t.Parallel()
	srv := start(t, Config{Dir: newDir(t), Unsafe: true})
	began := time.Now()
	if second, err := Start(t.Context(), Config{Dir: srv.Dir}); err == nil {
		_ = second.Stop()
		t.Fatal("a second server started")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the refusal took %v, want it at once", took)
	}
	query(t, srv.DSN("postgres"), `SELECT 1`) // the first one does not mind
}

func TestFolderWithSomebodysFilesIsRefused(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	file := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(file, []byte("do not touch"), 0o644); err != nil {
		t.Fatal(err)
	}
	if srv, err := Start(t.Context(), Config{Dir: dir}); err == nil {
		_ = srv.Stop()
		t.Fatal("a server started in a folder that is not ours")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestInterruptedInitdbIsRepeated(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // somewhere inside initdb
	defer cancel()
	if srv, err := Start(ctx, Config{Dir: dir, Unsafe: true}); err == nil {
		_ = srv.Stop()
		t.Fatal("the start was not interrupted")
	}
	start(t, Config{Dir: dir, Unsafe: true})
}

func TestLongPathsGetAShortSocket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(newDir(t), strings.Repeat("long", 25))
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // as root: let the server's user in
		t.Fatal(err)
	}
	srv := start(t, Config{Dir: dir, Unsafe: true})
	query(t, srv.DSN("postgres"), `SELECT 1`)
	if got, want := srv.Dir, dir; got != want {
		t.Errorf("got folder %s, want %s", got, want)
	}
	t.Cleanup(func() { _ = os.RemoveAll(srv.socket) })
}

// As root, the server's user cannot enter a folder below one of mode 0700. An
// ordinary user starts the server as itself and can.
func TestFolderThatTheServersUserCannotEnterIsReplaced(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(newDir(t), "pg") // newDir makes a folder of mode 0700
	srv := start(t, Config{Dir: dir, Unsafe: true})
	query(t, srv.DSN("postgres"), `CREATE TABLE payment (id text)`)
	if os.Geteuid() != 0 {
		if got, want := srv.Dir, dir; got != want {
			t.Errorf("got folder %s, want %s", got, want)
		}
		return
	}
	t.Cleanup(func() { _ = os.RemoveAll(srv.Dir) })
	if !strings.HasPrefix(srv.Dir, "/var/tmp/orderpaid-") {
		t.Errorf("got folder %s, want one under /var/tmp", srv.Dir)
	}
	if err := srv.Stop(); err != nil {
		t.Fatal(err)
	}
	again := start(t, Config{Dir: dir, Unsafe: true})
	query(t, again.DSN("postgres"), `SELECT id FROM payment`)
}

// envParent makes this test binary the parent that is to be killed.
const envParent = "PGSERVER_TEST_PARENT_DIR"

func TestServerDiesWithItsParent(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(envParent); dir != "" {
		srv, err := Start(t.Context(), Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nready %d\n", srv.PID())
		<-srv.Done() // for ever: the test kills this process
		return
	}
	dir := newDir(t)
	parent := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithItsParent$")
	parent.Env = append(os.Environ(), envParent+"="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "ready %d", &pid)
	}
	if pid == 0 {
		t.Fatal("the parent did not start its server")
	}
	srv := &Server{Dir: dir}
	if !isPostmaster(pid, srv.data()) {
		t.Fatalf("process %d is not a server on %s", pid, srv.data())
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"

	again := start(t, Config{Dir: dir}) // also waits for what is left of the old one
	query(t, again.DSN("postgres"), `SELECT 1`)
	if isPostmaster(pid, srv.data()) {
		t.Errorf("process %d still runs", pid)
	}
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	srv, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// newDir returns an empty folder below one that everybody may enter, which
// that of t.TempDir is not for the server's user.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orderpaid-pgserver-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// query runs statements in a session of its own and returns the one value of
// the last, or "".
func query(t *testing.T, dsn string, statements ...string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range statements {
		rows, _ := conn.Query(t.Context(), sql)
		values, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			return string(row.RawValues()[0]), nil // text has the same form on the wire
		})
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		value = strings.Join(values, "\n")
	}
	return value
}
