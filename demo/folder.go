package demo

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockFolder takes the demo's folder for this process, and says who has it if
// somebody has: a second demo would build over programs that run and empty
// their logs. The kernel frees the lock when its holder dies.
func lockFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "demo.pid"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := io.ReadAll(file)
		_ = file.Close()
		holder := strings.TrimSpace(string(pid))
		return nil, fmt.Errorf("the demo already runs here as process %s: end it with Ctrl-C there, or with kill %s, or use another checkout", holder, holder)
	}
	if err = file.Truncate(0); err == nil {
		_, err = fmt.Fprintln(file, os.Getpid())
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return file, nil
}
