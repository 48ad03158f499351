package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A Machine is what the figures belong to.
type Machine struct {
	CPU      string  `json:"cpu"`
	Cores    int     `json:"cores"`
	MemoryMB int     `json:"memory_mb"`
	Kernel   string  `json:"kernel"`
	Go       string  `json:"go"`
	Postgres string  `json:"postgres"`
	NATS     string  `json:"nats"`
	SyncMS   float64 `json:"sync_ms"` // median of writing 8 kB and having it on the disk
	Load     string  `json:"load"`    // of the minute before the start
}

func (s *stand) describe(ctx context.Context) (Machine, error) {
	m := Machine{CPU: cpuModel(), Cores: runtime.NumCPU(), MemoryMB: int(memoryMB()), Go: runtime.Version(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), NATS: s.always.nc.ConnectedServerVersion()}
	m.Load, _, _ = strings.Cut(firstLine("/proc/loadavg"), " ")
	if err := s.admin.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&m.Postgres); err != nil {
		return m, fmt.Errorf("ask for PostgreSQL's version: %w", err)
	}
	var err error
	m.SyncMS, err = syncTime(s.dir)
	return m, err
}

func firstLine(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	return line
}

func cpuModel() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(raw)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}

// memoryMB is the machine's memory, or 0 where the kernel does not say.
func memoryMB() int64 {
	fields := strings.Fields(firstLine("/proc/meminfo"))
	if len(fields) < 2 {
		return 0
	}
	kb, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return kb / 1024
}

// syncTime is how long the disk takes to make a page durable, in milliseconds:
// the figure that a commit cannot go below.
func syncTime(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "sync-probe"))
	if err != nil {
		return 0, fmt.Errorf("probe the disk: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is 8 kB in a folder of our own
	defer f.Close()
	page := make([]byte, 8192)
	var times []float64
	for range 200 {
		began := time.Now()
		if _, err := f.WriteAt(page, 0); err != nil {
			return 0, fmt.Errorf("probe the disk: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("probe the disk: %w", err)
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	return median(times), nil
}

// commit names the state of the sources, or is empty outside of a checkout.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
