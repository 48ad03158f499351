package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"orderpaid/platform/service/servicetest"
)

// A child is one of our programs in a process of its own. Nothing starts it
// again when it dies.
type child struct {
	name string
	cmd  *exec.Cmd
	ops  string // base URL of its second listener
	log  string
	done chan struct{} // closed when it has ended
	err  error         // how; valid once done is closed
}

// start runs a program until the test ends.
func start(t *testing.T, name, program string, env ...string) *child {
	t.Helper()
	ops := servicetest.FreeAddr(t)
	c := &child{name: name, ops: "http://" + ops, log: filepath.Join(t.TempDir(), name+".log"), done: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.cmd = exec.Command(filepath.Join(bin, program))
	c.cmd.Env = append(append(os.Environ(), markEnv+"="+mark, "OPS_ADDR="+ops, "EXIT_WITH_PARENT=1"), env...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if _, err := c.cmd.StdinPipe(); err != nil { // held open until this process ends
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			c.showLog(t)
		}
	})
	return c
}

// awaitReady returns when the program says that it is ready.
func (c *child) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, 30*time.Second, c.name+" is ready", func() bool {
		select {
		case <-c.done:
			t.Fatalf("%s ended: %v", c.name, c.err)
		default:
		}
		resp, err := http.Get(c.ops + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// awaitListening returns when something listens at addr: for a program that
// has no second listener to ask.
func (c *child) awaitListening(t *testing.T, addr string) {
	t.Helper()
	eventually(t, 30*time.Second, c.name+" listens", func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// metrics returns what the program says of itself.
func (c *child) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(c.ops + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metric returns the sum of all lines that begin like this.
func (c *child) metric(t *testing.T, pattern string) (sum float64) {
	t.Helper()
	for _, line := range regexp.MustCompile(`(?m)^`+pattern+`.* ([0-9.e+]+)$`).FindAllStringSubmatch(c.metrics(t), -1) {
		value, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

// kill ends the process as a crash would, and returns when it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error means that it has ended
	<-c.done
}

// terminate asks the process to end and returns how it did.
func (c *child) terminate(t *testing.T, within time.Duration) error {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	select {
	case <-c.done:
		return c.err
	case <-time.After(within):
		t.Fatalf("%s did not end within %s of SIGTERM", c.name, within)
		return nil
	}
}

func (c *child) showLog(t *testing.T) {
	log, err := os.ReadFile(c.log)
	if err != nil {
		t.Log(err)
	}
	t.Logf("the end of %s's log:\n%s", c.name, log[max(0, len(log)-4000):])
}

// startRelay starts a relay for one database.
func startRelay(t *testing.T, n int, database, dsn, natsURL string) *child {
	t.Helper()
	return start(t, fmt.Sprintf("relay-%d", n), "relay", "RELAY_DATABASES="+database+"="+dsn, "NATS_URL="+natsURL)
}
