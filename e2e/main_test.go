// Package e2e tests the shop as it runs: real processes, real PostgreSQL, a
// real nats-server, and kill -9.
package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"orderpaid/demo"
)

// markEnv is in the environment of every process that these tests start, so
// that one which is left behind can be found, whoever its parent is by then.
const markEnv = "ORDERPAID_E2E_MARK"

var (
	mark = rand.Text()
	root string // of the checkout
	bin  string // the programs under test
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if root, err = demo.FindRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = filepath.Join(root, ".orderpaid", "bin")
	if err := demo.Build(context.Background(), root, bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	// The shop's supervisor, links and loads run in this process. Its HTTP
	// client keeps connections, and an in-process nats-server that was stopped in
	// the middle of a batch keeps the store of that open.
	http.DefaultClient.CloseIdleConnections()
	const natsServer = "github.com/nats-io/nats-server/v2/server"
	err = goleak.Find(
		goleak.IgnoreTopFunction(natsServer+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(natsServer+".(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction(natsServer+"/ats.Register.func1"),
		goleak.IgnoreAnyFunction("orderpaid/platform/pgserver.startProcess.func1"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if left := leftBehind(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes left behind: %v\n", left)
		return 1
	}
	return code
}

// leftBehind returns the processes that carry the mark, once those that are on
// their way out are gone.
func leftBehind() (pids []int) {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if pids = marked(); len(pids) == 0 {
			return nil
		}
	}
	return pids
}

// marked looks where Linux shows it; on other systems scripts/test looks, by ps.
func marked() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the only error is a bad pattern
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, []byte(markEnv+"="+mark+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually polls cond until it is true, and fails the test when it is not in
// time.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !cond(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
