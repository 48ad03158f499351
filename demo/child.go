package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A child is one process and, after a death, its successors.
type child struct {
	spec Spec
	log  *os.File
	stop chan struct{} // closed when it shall not be started again
	done chan struct{} // closed when it has ended for good
	err  error         // why it was given up; valid once done is closed

	mu       sync.Mutex
	pid      int // of the running process and of its group; 0 between two
	stopping bool
}

var errStopping = errors.New("it is being stopped")

// start starts one process. It does not wait for it: whoever calls start must
// call wait.
func (c *child) start() (*exec.Cmd, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return nil, errStopping
	}
	cmd := exec.Command(c.spec.Path, c.spec.Args...)
	cmd.Env = append(os.Environ(), c.spec.Env...)
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Nothing is ever written to the pipe. Its write end is closed on exec, so
	// this process alone holds it, and it closes when this process is gone.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	return cmd, nil
}

// wait returns how the process ended, in a person's words.
func (c *child) wait(cmd *exec.Cmd) string {
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	// What the process had started itself must not outlive it: it would hold
	// the port that the successor needs.
	_ = c.send(syscall.SIGKILL)
	c.pid = 0
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// send signals the whole group for SIGKILL, else the process alone, which
// passes other signals on as it sees fit. The caller holds c.mu.
func (c *child) send(sig syscall.Signal) error {
	target := c.pid
	if sig == syscall.SIGKILL {
		target = -c.pid
	}
	if err := syscall.Kill(target, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", c.spec.Name, err)
	}
	return nil
}

// end stops the child for good and returns when it is gone.
func (c *child) end() {
	c.mu.Lock()
	if !c.stopping {
		c.stopping = true
		close(c.stop)
	}
	if c.pid != 0 {
		_ = c.send(syscall.SIGTERM)
	}
	c.mu.Unlock()

	select {
	case <-c.done:
		return
	case <-time.After(c.spec.Grace):
	}
	c.mu.Lock()
	if c.pid != 0 {
		_ = c.send(syscall.SIGKILL)
	}
	c.mu.Unlock()
	<-c.done
}

func (c *child) isStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// awaitReady polls the child's readiness until it is there, the child was
// given up, or ctx is done.
func (c *child) awaitReady(ctx context.Context) error {
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	var last error
	for {
		if last = c.spec.Ready(ctx); last == nil {
			return nil
		}
		select {
		case <-c.done:
			return c.err
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", last)
		case <-poll.C:
		}
	}
}
