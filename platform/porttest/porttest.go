// Package porttest finds addresses for servers that a test starts and that must
// know theirs before they listen. It imports nothing of the project, so that
// everybody's tests can use it.
package porttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// The ports are below those that systems give to outgoing connections, or one
// of those could take a port before its server does.
const (
	lowest = 15_000
	below  = 30_000
)

var (
	takenMu sync.Mutex
	taken   = map[int]bool{}
)

// Free returns an address of this machine that nobody listens at and that no
// other test of this process gets.
func Free(t testing.TB) string {
	t.Helper()
	takenMu.Lock()
	defer takenMu.Unlock()
	for range 1000 {
		port := lowest + rand.IntN(below-lowest)
		if taken[port] {
			continue
		}
		taken[port] = true
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close() // nobody has connected
			return addr
		}
	}
	t.Fatalf("no port from %d to %d is free", lowest, below-1)
	return ""
}
