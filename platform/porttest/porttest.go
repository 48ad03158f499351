// Package porttest is [freeport] for tests: servers that a test starts, and that
// must know their address before they listen, get it here.
package porttest

import (
	"testing"

	"orderpaid/platform/freeport"
)

// picker is one for all tests of a process, so that none gets what another has.
var picker freeport.Picker

// Free returns an address of this machine that nobody listens at and that no
// other test of this process gets.
func Free(t testing.TB) string {
	t.Helper()
	addr, err := picker.Pick(0)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
