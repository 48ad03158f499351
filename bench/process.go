package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A child is a process that the stand has started and will stop.
type child struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; read after done
}

// spawn starts a program of the bin folder. What it prints goes to a file. On
// Linux it dies with this process, however that ends; the kernel ties this to
// the thread that started it, hence the goroutine that keeps its thread.
func (s *stand) spawn(name, program string, env []string, args ...string) (*child, error) {
	c := &child{name: name, log: filepath.Join(s.dir, "log", name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	c.cmd = exec.CommandContext(context.Background(), filepath.Join(s.bin, program), args...)
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches this process, which stops the others
	dieWithParent(c.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop asks the process to end, and ends it if it does not.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has just ended
	select {
	case <-c.done:
	case <-time.After(20 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// awaitReady waits until url answers with 2xx.
func (c *child) awaitReady(ctx context.Context, url string) error {
	return poll(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-c.done:
			return false, fmt.Errorf("%s ended at once (%v), see %s", c.name, c.err, c.log)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil // it does not listen yet
		}
		defer resp.Body.Close()
		return resp.StatusCode/100 == 2, nil
	})
}

// poll asks until the answer is yes. The questions become rarer, a fiftieth of
// the time so far but never more often than given: to ask a server for its
// state costs it something, and that must not become a part of what is measured.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	began := time.Now()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(errTooLong, ctx.Err())
		case <-time.After(max(every, time.Since(began)/50)):
		}
	}
}

var errTooLong = errors.New("it did not get there in time")

// freeAddress returns an address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// stat is what the kernel says of a process.
type stat struct {
	parent int
	cpu    time.Duration // of its own
	reaped time.Duration // of its children that have ended
}

// tick is the kernel's unit of CPU time in /proc, the same on all of Linux.
const tick = time.Second / 100

// readStat reads /proc/<pid>/stat; see proc(5). The name, in brackets, may
// hold anything, so fields are counted from behind it.
func readStat(pid int) (stat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return time.Duration(n) * tick
	}
	parent, err := strconv.Atoi(fields[1])
	return stat{parent: parent, cpu: ticks(11) + ticks(12), reaped: ticks(13) + ticks(14)}, err
}

// cpuOfTree is the CPU time of a process and of all children it ever had, one
// level deep: PostgreSQL's sessions are children of its postmaster.
func cpuOfTree(pid int) (time.Duration, error) {
	root, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	total := root.cpu + root.reaped
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := readStat(n); err == nil && st.parent == pid { // an error: it ended meanwhile
			total += st.cpu
		}
	}
	return total, nil
}

// peakMemory is the largest resident set that the process ever had, in MiB.
func (c *child) peakMemory() (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", c.pid())
}

// busyCPU is what all cores have spent on anything since the machine started.
func busyCPU() (time.Duration, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, errors.New("/proc/stat does not begin with the line of all cores")
	}
	var total time.Duration
	for _, i := range []int{1, 2, 3, 6, 7, 8} { // all but idle and waiting for disks
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// ownCPU is the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
