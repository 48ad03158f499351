package porttest

import (
	"net"
	"net/netip"
	"testing"
)

func TestAddressesDifferAndNoOutgoingConnectionGetsThem(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 50 {
		addr := Free(t)
		if port := netip.MustParseAddrPort(addr).Port(); seen[addr] || port < lowest || port >= below {
			t.Errorf("got %s, want a new one from %d to %d", addr, lowest, below-1)
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}
