// Package freeport finds addresses for servers that must know theirs before they
// listen. It imports nothing of the project, so that everything can use it.
//
// Nothing can keep a port for a program that does not listen yet. To ask the
// system for any port and give it back is the worst of ways: the system may give
// the same one to the next connection that anybody makes, and does so most
// readily on a machine where many tests run. What is found here is in a range
// from which no system takes ports by itself, and is found once.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below those that systems give to outgoing connections, or one
// of those could take a port before its server does.
const (
	lowest = 15_000
	below  = 30_000
)

// tries bounds the search. On a machine with half of the range in use, all of
// them fail once in 10^300 searches.
const tries = 1000

// A Picker finds addresses of this machine, none of them twice. The zero value
// is ready, and safe for concurrent use. Two pickers, of two processes at that,
// may find the same one, if neither's server listens yet; the range is wide.
type Picker struct {
	mu    sync.Mutex
	given map[int]bool
}

// Pick returns host:port of an address at which nobody listens: the preferred
// port if it is free, any other if it is not. Preferred 0 means any.
func (p *Picker) Pick(preferred int) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if preferred != 0 {
		if addr, ok := p.take(preferred); ok {
			return addr, nil
		}
	}
	for range tries {
		if addr, ok := p.take(lowest + rand.IntN(below-lowest)); ok {
			return addr, nil
		}
	}
	return "", fmt.Errorf("no port from %d to %d is free on 127.0.0.1", lowest, below-1)
}

// take returns the address of a port if it can be listened at now and was not
// given to anybody before.
func (p *Picker) take(port int) (addr string, ok bool) {
	if p.given[port] {
		return "", false
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", false
	}
	_ = l.Close() // nobody has connected
	if p.given == nil {
		p.given = map[int]bool{}
	}
	p.given[port] = true
	return addr, true
}
