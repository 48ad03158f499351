package demo

import (
	"fmt"
	"net"
	"strconv"
)

// An address picker hands out local addresses that nobody listens on.
type addressPicker struct{ taken map[int]bool }

// pick returns the preferred port if it is free, so that the addresses in the
// README work, and any other if it is not. Preferred 0 means any.
//
// Between the look and the use somebody else may take the port; the child then
// fails to start and says so.
func (p *addressPicker) pick(preferred int) (string, error) {
	for _, port := range []int{preferred, 0, 0, 0} {
		if p.taken[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		port = l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil || p.taken[port] {
			continue
		}
		p.taken[port] = true
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
	}
	return "", fmt.Errorf("no free port on 127.0.0.1")
}
