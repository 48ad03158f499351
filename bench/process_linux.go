package main

import "syscall"

// dieWithParent has the kernel end a child when this process ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
