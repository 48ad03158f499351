package pgserver

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent has the kernel send SIGQUIT, PostgreSQL's immediate shutdown,
// when the parent dies. Not SIGINT: a fast shutdown waits for a checkpoint,
// and the next start may be waiting already. Not SIGKILL: the postmaster would
// leave its children behind.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// isPostmaster reports whether pid is a server on this data folder, and not a
// program that got its number later.
func isPostmaster(pid int, data string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(cmdline, []byte("\x00"+data+"\x00"))
}
