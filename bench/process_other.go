//go:build !linux

package main

import "syscall"

// dieWithParent does nothing: main refuses to run where there is no /proc.
func dieWithParent(*syscall.SysProcAttr) {}
