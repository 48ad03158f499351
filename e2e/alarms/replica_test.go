package alarms

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/demo"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/platform/porttest"
	"orderpaid/services/console"
)

// The shop of the other test has one broker, which no replica can be behind.
// Here three servers store each event, as in production; one of them stops.
func TestTheAlarmOfAReplicaFiresWhileAServerIsAwayAndClearsWhenItIsBack(t *testing.T) {
	t.Parallel()
	servers := natstest.Cluster(t, 3)
	js := connectTo(t, servers)
	topology := natsbroker.Topology{Replicas: 3, Subscriptions: console.Subscriptions()}
	eventually(t, "the servers store a stream together", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return natsbroker.EnsureTopology(ctx, servers[0].URL(), topology) == nil
	})
	p := startPrometheus(t, strings.TrimPrefix(startConsole(t, urls(servers)), "http://"))
	p.see(t, "all replicas have everything", `shop_stream_replica_lag == 0`)

	behind := follower(t, js, servers)
	behind.Stop()
	fill(t, js, 200)
	p.waitFor(t, "ReplicaBehind", true)
	behind.Restart(t)
	p.waitFor(t, "ReplicaBehind", false)
	p.see(t, "it has caught up by itself", `shop_stream_replica_lag == 0 and shop_stream_messages == 200`)
}

func urls(servers []*natstest.Server) string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.URL()
	}
	return strings.Join(all, ",")
}

func connectTo(t *testing.T, servers []*natstest.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(urls(servers), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// follower returns a server that stores the stream and does not lead it.
func follower(t *testing.T, js jetstream.JetStream, servers []*natstest.Server) *natstest.Server {
	t.Helper()
	stream, err := js.Stream(t.Context(), natsbroker.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	leader := stream.CachedInfo().Cluster.Leader
	return servers[slices.IndexFunc(servers, func(s *natstest.Server) bool { return s.Name() != leader })]
}

// fill publishes n messages that no consumer reads. While the servers agree on
// who leads, one of them may have to be sent again.
func fill(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for i := range n {
		eventually(t, fmt.Sprintf("message %d is stored", i), func() bool {
			_, err := js.Publish(t.Context(), "shop.events.test.Filler.v1.p0", nil, jetstream.WithMsgID(fmt.Sprint(i)))
			return err == nil
		})
	}
}

// startConsole runs the console alone, whose board is what exports the broker's
// state, and returns the address of its ops listener.
func startConsole(t *testing.T, natsURL string) (opsURL string) {
	t.Helper()
	root, err := demo.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Build(t.Context(), root, bin(root)); err != nil {
		t.Fatal(err)
	}
	addr := porttest.Free(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin(root), "console"))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+pgtest.New(t, "console").Config().ConnString(), "NATS_URL="+natsURL,
		"HTTP_ADDR=127.0.0.1:0", "OPS_ADDR="+addr, "LOG_LEVEL=error",
		"OPS_PEERS=order=http://127.0.0.1:1 points=http://127.0.0.1:1 notify=http://127.0.0.1:1 search=http://127.0.0.1:1 console=http://"+addr)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it runs: nobody has waited for it
		_ = cmd.Wait()                          // the context of the test has killed it: that is its error
	})
	return "http://" + addr
}
