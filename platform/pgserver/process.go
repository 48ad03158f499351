package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a postmaster that this process has started.
type process struct {
	pid  int
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
}

// startProcess starts cmd in a process group of its own, so that a Ctrl-C
// in the terminal reaches the parent alone, which then stops the server after
// everything that uses it.
//
// The child gets a signal when the parent dies (see dieWithParent). Linux
// sends it when the *thread* that started the child ends, and Go ends threads
// as it likes; hence the goroutine that keeps its thread until the child is
// gone.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)

	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop shuts the server down: fast, then at once, then by force. It returns an
// error unless the fast way worked.
func (p *process) stop() error {
	if !p.running() {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGINT) // an error means that it has just ended
	if p.endsWithin(fastTimeout) {
		return p.err
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	if !p.endsWithin(quitTimeout) {
		p.kill()
	}
	return fmt.Errorf("it did not stop within %v and was ended without a checkpoint", fastTimeout)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) endsWithin(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// lockFile is held by the process that started the server, and marks a folder
// as one of ours.
const lockFile = "lock"

// lockDir takes the folder's lock. The kernel frees it when its holder dies,
// so a lock that is taken means a living owner, and a free one means that a
// server which still runs in the folder belongs to nobody.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, errors.New("another process is running a server there")
	}
	return f, nil
}

func (s *Server) unlock() {
	if s.lock != nil {
		_ = s.lock.Close() // also releases the lock
		s.lock = nil
	}
}

// retireOld stops a server that an earlier parent left behind, and reports
// whether the end before this start was an unclean one.
func (s *Server) retireOld(ctx context.Context) (unclean bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, retireTime)
	defer cancel()
	pidFile := filepath.Join(s.data(), "postmaster.pid")
	for {
		raw, err := os.ReadFile(pidFile)
		if errors.Is(err, os.ErrNotExist) {
			return unclean, nil
		}
		if err != nil {
			return false, err
		}
		unclean = true
		first, _, _ := strings.Cut(string(raw), "\n")
		pid, err := strconv.Atoi(first)
		// A pid that is gone, or that by now is some other program's: the
		// new server looks itself and replaces the file.
		if err != nil || !isPostmaster(pid, s.data()) {
			return unclean, nil
		}
		if err := syscall.Kill(pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return false, fmt.Errorf("stop the server left behind, process %d: %w", pid, err)
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return false, fmt.Errorf("the server left behind, process %d, does not end", pid)
		}
	}
}
