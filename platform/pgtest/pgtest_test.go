package pgtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/pgserver"
)

func TestTwoTestsDoNotSeeEachOthersRows(t *testing.T) {
	t.Parallel()
	first, second := New(t, "messaging"), New(t, "messaging")
	insert(t, first)
	if got, want := count(t, first), 1; got != want {
		t.Errorf("first database: got %d rows, want %d", got, want)
	}
	if got, want := count(t, second), 0; got != want {
		t.Errorf("second database: got %d rows, want %d", got, want)
	}
}

func TestOwnerMessagingHasTheMessagingSchemaOnly(t *testing.T) {
	t.Parallel()
	pool := New(t, "messaging")
	rows, _ := pool.Query(t.Context(), `SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'goose\_%'`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != "goose_messaging" {
		t.Errorf("got version tables %v, want goose_messaging alone", got)
	}
}

func TestDatabaseIsDroppedWhenItsTestPasses(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("inner", func(t *testing.T) {
		pool := New(t, "messaging")
		name = pool.Config().ConnConfig.Database
		if !strings.HasPrefix(name, "test_databaseisdroppedwhenitstestpasses_inner_") {
			t.Errorf("got name %s, want one that says which test it is of", name)
		}
		t.Cleanup(func() { // runs before the one of New, and must not stop it
			_, _ = pool.Acquire(t.Context())
		})
	})
	var left bool
	err := asAdmin(t.Context(), clusterDSN(t), func(conn *pgx.Conn) (err error) {
		left, err = exists(t.Context(), conn, name)
		return err
	})
	if err != nil || left {
		t.Errorf("database %s exists: %v, %v, want that it is dropped", name, left, err)
	}
}

func TestCloningWaitsForATemplateInUse(t *testing.T) {
	t.Parallel()
	calls := 0
	err := retryInUse(t.Context(), func() error {
		if calls++; calls < 3 {
			return fmt.Errorf("clone: %w", &pgconn.PgError{Code: "55006"})
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("got %v after %d calls, want success after 3", err, calls)
	}
}

func TestCommittedRowsOfADurableServerSurviveKill(t *testing.T) {
	t.Parallel()
	srv := Durable(t)
	pool := On(t, srv, "messaging")
	insert(t, pool)
	srv.Kill()
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool.Reset() // its connections died with the server
	if got, want := count(t, pool), 1; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
}

func TestPrepareAllFindsWhatTheSchemaDoesNotHave(t *testing.T) {
	t.Parallel()
	pool := New(t, "messaging")
	rec := &recorder{TB: t}
	PrepareAll(rec, pool, map[string]string{
		"sqlGood":    `SELECT event_id FROM message_outbox WHERE shard = @shard AND id > @after AND id > @after`,
		"sqlColumn":  `SELECT no_such_column FROM message_outbox`,
		"sqlTable":   `DELETE FROM no_such_table WHERE id = $1`,
		"sqlGrammar": `SELEKT 1`,
	})
	want := []string{"sqlColumn", "sqlGrammar", "sqlTable"}
	if len(rec.errors) != len(want) {
		t.Fatalf("got %q, want errors of %v", rec.errors, want)
	}
	for i, name := range want {
		if !strings.HasPrefix(rec.errors[i], name+": ") {
			t.Errorf("got %q, want it to begin with %s", rec.errors[i], name)
		}
	}
}

// envChild says which part a copy of this test binary plays.
const envChild = "PGTEST_TEST_CHILD"

// TestInChild is the test that the two tests below run in a child process.
func TestInChild(t *testing.T) {
	t.Parallel()
	part := os.Getenv(envChild)
	pool := New(t, "messaging")
	insert(t, pool)
	switch part {
	case "fail":
		t.Error("on purpose")
	case "hang":
		fmt.Println("\nready")
		select {} // for ever: the parent kills this process
	}
}

func TestFailedTestKeepsItsDatabase(t *testing.T) {
	t.Parallel()
	dir := tempDirForAll(t)
	out, err := child(t, "fail", dir).Output()
	if err == nil {
		t.Fatalf("the child passed: %s", out)
	}
	match := regexp.MustCompile(`the database of this test is kept: postgres://\S+/(test_inchild_\w+)\?`).FindSubmatch(out)
	if match == nil {
		t.Fatalf("the child's output does not name the database: %s", out)
	}
	kept, _ := filepath.Glob(filepath.Join(dir, dirPrefix+"*"))
	if len(kept) != 1 {
		t.Fatalf("got folders %v, want one", kept)
	}
	srv, err := pgserver.Start(t.Context(), pgserver.Config{Dir: kept[0], Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Stop() }()
	pool, err := pgxpool.New(t.Context(), srv.DSN(string(match[1])))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if got, want := count(t, pool), 1; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
}

func TestKilledRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := tempDirForAll(t)
	cmd := child(t, "hang", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
	}
	if lines.Text() != "ready" {
		t.Fatal("the child did not get a database")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"

	var left []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if left, _ = filepath.Glob(filepath.Join(dir, "*")); len(left) == 0 {
			return
		}
	}
	t.Errorf("%v is left behind", left)
}

// child prepares a run of TestInChild with a cluster of its own below dir.
func child(t *testing.T, part, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInChild$", "-test.v")
	cmd.Env = append(os.Environ(), envChild+"="+part, "TMPDIR="+dir, EnvDSN+"=")
	return cmd
}

// tempDirForAll returns a folder that the server's user may enter.
func tempDirForAll(t *testing.T) string {
	t.Helper()
	dir := tempDir(t)
	t.Cleanup(func() { removeAll(t, dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// recorder keeps the errors that it is told instead of failing the test.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func insert(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `INSERT INTO message_progress (consumer, aggregate_type, aggregate_id, last_version) VALUES ('c', 'order', 'ord_1', 1)`)
	if err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM message_progress`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
