//go:build unix && !linux

package pgserver

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent: other systems know no such thing. What is left behind is
// stopped by the next start in the same folder.
func dieWithParent(*syscall.SysProcAttr) {}

// isPostmaster reports whether pid is a server on this data folder, and not a
// program that got its number later.
func isPostmaster(pid int, data string) bool {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), data)
}
