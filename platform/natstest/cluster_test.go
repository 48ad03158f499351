package natstest

import "testing"

// An outgoing connection that took the port of one of them would keep the
// cluster from starting.
func TestTheServersOfAClusterListenBelowTheRangeOfOutgoingConnections(t *testing.T) {
	t.Parallel()
	routes, ports := addresses(t, 8)
	seen := map[int]bool{}
	for i, port := range ports {
		if seen[port] || port < 1024 || port >= 30_000 {
			t.Errorf("got port %d for %s, want a new one below 30000", port, routes[i].Host)
		}
		seen[port] = true
	}
}
