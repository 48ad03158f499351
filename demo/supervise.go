package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Limits of a supervisor's patience.
const (
	maxQuickDeaths = 6                      // a child that dies this often in a row, each time young, is given up
	youngChild     = 10 * time.Second       // a child that lived longer than this starts with a clean record
	firstBackoff   = 100 * time.Millisecond // doubled with each quick death, up to lastBackoff
	lastBackoff    = 5 * time.Second
	defaultGrace   = 10 * time.Second
	readyWait      = 60 * time.Second
	readyPoll      = 20 * time.Millisecond
)

// A Spec describes one child process.
type Spec struct {
	Name string   // unique among the supervisor's children; names its log file
	Path string   // of the program
	Args []string // without the program's name
	Env  []string // name=value, added to this process's own environment

	// Ready is asked until it returns nil. Defaults to ready once started.
	Ready func(ctx context.Context) error

	// Grace is what the child gets between SIGTERM and SIGKILL. Defaults to 10 s.
	Grace time.Duration
}

// A Supervisor runs child processes and keeps them running. A child that dies
// is started again with a growing pause; one that dies again and again is
// given up, and [Supervisor.Failed] says so.
//
// Every child is the leader of its own process group, so that a Ctrl-C at the
// terminal reaches only the supervisor, which then stops them in order; and
// every child has a pipe as standard input whose other end only this process
// holds. When this process dies, even by SIGKILL, the kernel closes it: a
// child started with --exit-with-parent, or run by [Guard], ends by itself.
type Supervisor struct {
	// Env is added to the environment of every child. Set it before the first
	// Start. Defaults to nothing.
	Env []string

	logDir string
	notice func(string) // told about deaths and restarts, in a person's words
	failed chan error

	mu       sync.Mutex
	children []*child // in the order of their start
}

// NewSupervisor returns a supervisor that writes <logDir>/<name>.log for each
// child, keeping the log of the run before as <name>.log.old.
func NewSupervisor(logDir string, notice func(string)) (*Supervisor, error) {
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, fmt.Errorf("log folder: %w", err)
	}
	return &Supervisor{logDir: logDir, notice: notice, failed: make(chan error, 1)}, nil
}

// Start starts the child and returns when it is ready. If it does not become
// ready within a minute, or dies for good, Start stops it and says where its
// log is.
func (s *Supervisor) Start(ctx context.Context, spec Spec) error {
	c, err := s.launch(spec)
	if err != nil {
		return fmt.Errorf("start %s: %w", spec.Name, err)
	}
	if spec.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	if err := c.awaitReady(ctx); err != nil {
		c.end()
		return fmt.Errorf("start %s (its log: %s): %w", spec.Name, s.LogFile(spec.Name), err)
	}
	return nil
}

// Failed delivers the reason when a child was given up.
func (s *Supervisor) Failed() <-chan error { return s.failed }

// LogFile returns where the child's output goes.
func (s *Supervisor) LogFile(name string) string { return filepath.Join(s.logDir, name+".log") }

// Kill ends the child with SIGKILL, as a crash would. The supervisor then
// treats it like any other death: it is started again.
func (s *Supervisor) Kill(name string) error { return s.signal(name, syscall.SIGKILL) }

// Terminate asks the child to end, as an orchestrator would before it replaces
// it. The supervisor starts it again.
func (s *Supervisor) Terminate(name string) error { return s.signal(name, syscall.SIGTERM) }

// Stop ends the child for good: SIGTERM, its grace, SIGKILL.
func (s *Supervisor) Stop(name string) error {
	c, err := s.find(name)
	if err != nil {
		return err
	}
	c.end()
	return nil
}

// StopAll ends every child for good, the youngest first, and returns when
// none is left.
func (s *Supervisor) StopAll() {
	s.mu.Lock()
	children := s.children
	s.mu.Unlock()
	for i := len(children) - 1; i >= 0; i-- {
		children[i].end()
	}
}

// PID returns the child's process id, or 0 while it has none.
func (s *Supervisor) PID(name string) int {
	c, err := s.find(name)
	if err != nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// Wait returns when the child has ended for good, or ctx is done.
func (s *Supervisor) Wait(ctx context.Context, name string) error {
	c, err := s.find(name)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Supervisor) signal(name string, sig syscall.Signal) error {
	c, err := s.find(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid == 0 {
		return fmt.Errorf("%s is not running", name)
	}
	return c.send(sig)
}

func (s *Supervisor) find(name string) (*child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.children {
		if c.spec.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no child is called %q", name)
}

func (s *Supervisor) launch(spec Spec) (*child, error) {
	if _, err := s.find(spec.Name); err == nil {
		return nil, errors.New("the name is taken")
	}
	log, err := s.openLog(spec.Name)
	if err != nil {
		return nil, err
	}
	if spec.Grace == 0 {
		spec.Grace = defaultGrace
	}
	spec.Env = append(slices.Clone(s.Env), spec.Env...)
	c := &child{spec: spec, log: log, stop: make(chan struct{}), done: make(chan struct{})}
	cmd, err := c.start()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	s.mu.Lock()
	s.children = append(s.children, c)
	s.mu.Unlock()
	go s.keep(c, cmd)
	return c, nil
}

func (s *Supervisor) openLog(name string) (*os.File, error) {
	path := s.LogFile(name)
	if err := os.Rename(path, path+".old"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// keep starts c again until it is stopped or given up.
func (s *Supervisor) keep(c *child, cmd *exec.Cmd) {
	defer close(c.done)
	defer c.log.Close()
	for deaths := 0; ; {
		born := time.Now()
		how := c.wait(cmd)
		if c.isStopping() {
			return
		}
		if time.Since(born) > youngChild {
			deaths = 0
		}
		if deaths++; deaths >= maxQuickDeaths {
			s.giveUp(c, fmt.Errorf("%s died %d times in a row (%s); its log: %s", c.spec.Name, deaths, how, s.LogFile(c.spec.Name)))
			return
		}
		pause := min(firstBackoff<<(deaths-1), lastBackoff)
		s.notice(fmt.Sprintf("%s died (%s), starting it again in %s", c.spec.Name, how, pause))
		select {
		case <-c.stop:
			return
		case <-time.After(pause):
		}
		var err error
		if cmd, err = c.start(); err != nil {
			s.giveUp(c, fmt.Errorf("start %s again: %w", c.spec.Name, err))
			return
		}
		s.notice(fmt.Sprintf("%s is process %d again", c.spec.Name, cmd.Process.Pid))
	}
}

func (s *Supervisor) giveUp(c *child, why error) {
	c.err = why
	s.fail(why)
}

// fail makes Failed deliver a reason.
func (s *Supervisor) fail(why error) {
	select {
	case s.failed <- why:
	default: // the first reason is enough
	}
}
