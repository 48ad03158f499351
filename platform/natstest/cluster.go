package natstest

import (
	"fmt"
	"net/netip"
	"net/url"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"orderpaid/platform/porttest"
)

// Cluster starts n servers that store streams together, as a deployment has
// them. A stream with replicas can be made once they have chosen a leader,
// which takes some seconds.
func Cluster(t testing.TB, n int) []*Server {
	t.Helper()
	routes, ports := addresses(t, n)
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = &Server{options: defaults(t)}
		o := servers[i].options
		o.ServerName = fmt.Sprintf("natstest-%d", i+1)
		o.Cluster = server.ClusterOpts{Name: "natstest", Host: "127.0.0.1", Port: ports[i]}
		o.Routes = routes
	}
	for _, s := range servers { // one after the other: each waits for itself alone
		s.start(t)
		t.Cleanup(s.Stop)
	}
	return servers
}

// Name returns the name by which the others of a cluster know the server.
func (s *Server) Name() string { return s.options.ServerName }

// addresses returns n addresses for servers that must know each other's before
// the first of them runs.
func addresses(t testing.TB, n int) (routes []*url.URL, ports []int) {
	t.Helper()
	for range n {
		addr := netip.MustParseAddrPort(porttest.Free(t))
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: addr.String()})
		ports = append(ports, int(addr.Port()))
	}
	return routes, ports
}
