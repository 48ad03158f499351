package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"orderpaid/platform/pgserver"
)

// EnvDSN names the environment variable with the address of a superuser on the
// cluster to use, as a URL (postgres://…).
const EnvDSN = "ORDERPAID_TEST_PG"

// clusterDSN returns the address of the cluster's superuser.
func clusterDSN(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv(EnvDSN); dsn != "" {
		return dsn
	}
	srv, err := privateServer()
	if err != nil {
		t.Fatalf("start a PostgreSQL for the tests: %v", err)
	}
	return srv.DSN("postgres")
}

// dirPrefix begins the names of all folders that this package makes.
const dirPrefix = "orderpaid-test-"

// keepFor is how long a failed test's folder is kept, and how long that of a
// killed one may lie about: each is a hundred megabytes.
const keepFor = time.Hour

// A cluster is the private server of this test binary.
type cluster struct {
	*pgserver.Server
	janitor *os.File // held open until this process ends; see startJanitor
}

// privateServer starts the cluster of this test binary, once. Nobody stops it:
// it dies with the binary, and the janitor removes its folder. So tests need
// no TestMain, and an interrupted or killed run leaves nothing behind either.
var privateServer = sync.OnceValues(func() (*cluster, error) {
	removeStale()
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return nil, err
	}
	// The start gets a context of its own: that of a test would end with it.
	srv, err := pgserver.Start(context.Background(), pgserver.Config{
		Dir: dir, Unsafe: true, SharedBuffersMB: 128,
		Settings: map[string]string{
			"max_wal_size": "128MB", // or thrown-away databases fill the disk with a gigabyte of log
			"min_wal_size": "32MB",
			"autovacuum":   "off", // its sessions stop clones; tests are over before tables bloat
		},
	})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	janitor, err := startJanitor(srv.Dir)
	return &cluster{srv, janitor}, err
})

// janitorScript waits for the end of its standard input, which is the end of
// the test binary, ends the server if the kernel has not, and removes the
// folder unless a failed test wants it. It waits for at most ten seconds.
const janitorScript = `
cat > /dev/null
for i in 1 2 3 4 5 6 7 8 9 10; do
	pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid" 2> /dev/null || break
	sleep 1
done
[ -e "$1/keep" ] || rm -rf "$1"
`

// startJanitor returns the other end of the janitor's standard input, which
// must stay open. The script runs in a process group of its own, so that a
// Ctrl-C does not reach it, and without this process's output, for whose end
// go test would wait.
func startJanitor(dir string) (*os.File, error) {
	input, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = input.Close() }() // the child has its own copy
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", janitorScript, "janitor", dir)
	cmd.Stdin = input
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start janitor: %w", err)
	}
	return ours, nil
}

// keepCluster makes the private server's folder outlive the test binary, and
// says how to start it again.
func keepCluster(t testing.TB) {
	if os.Getenv(EnvDSN) != "" {
		return // it stays up anyway
	}
	srv, err := privateServer()
	if err != nil {
		return
	}
	if err := os.WriteFile(filepath.Join(srv.Dir, "keep"), nil, 0o600); err != nil {
		t.Logf("keep %s: %v", srv.Dir, err)
		return
	}
	t.Logf("its server ends with the tests; start it again with: %s", srv.Command())
}

// removeStale removes what earlier runs have left behind and nobody will look
// at any more: no test runs for that long.
func removeStale() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > keepFor {
			_ = os.RemoveAll(dir) // it may be another user's
		}
	}
}

// tempDir returns a folder that the server's user can enter, which one from
// t.TempDir is not when the tests run as root.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func removeAll(t testing.TB, dir string) {
	if err := os.RemoveAll(dir); err != nil {
		t.Errorf("remove the server's folder: %v", err)
	}
}
