package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// guardGrace is what a guarded program gets between SIGTERM and SIGKILL once
// the guard's parent is gone.
const guardGrace = 5 * time.Second

// Guard runs a program that does not know how to end with its parent, and ends
// it when standard input closes: that is when the parent, which holds the
// other end, is gone. Signals are passed on. It returns the exit code; where a
// signal ended the program, the same one ends this process, so that whoever
// waits for it learns which.
func Guard(program string, args []string) (int, error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("guard: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	orphaned := make(chan struct{})
	go func() { // ends with the process: a read of standard input cannot be called off
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(orphaned)
	}()

	var deadline <-chan time.Time
	for {
		select {
		case err := <-ended:
			return exitCode(err)
		case sig := <-signals:
			_ = cmd.Process.Signal(sig)
		case <-orphaned:
			orphaned = nil
			_ = cmd.Process.Signal(syscall.SIGTERM)
			deadline = time.After(guardGrace)
		case <-deadline:
			_ = cmd.Process.Kill()
		}
	}
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			signal.Reset(status.Signal())
			_ = syscall.Kill(os.Getpid(), status.Signal())
			return 128 + int(status.Signal()), nil // it was not fatal here; a shell would say the same
		}
		return exit.ExitCode(), nil
	default:
		return 0, fmt.Errorf("guard: %w", err)
	}
}
