// Package leaktest fails a package's tests when they leave a goroutine behind:
// whatever a service or a client starts must have ended when it returns.
package leaktest

import (
	"testing"

	"go.uber.org/goleak"
)

const natsServer = "github.com/nats-io/nats-server/v2/server"

// Main is the whole of a package's TestMain. Not counted are the goroutines of
// servers that tests start, and of connections that the tests' own HTTP client
// keeps open. The broker leaves some of its own where it is stopped in the
// middle of a batch: the store of that batch stays open until the process ends.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction(natsServer+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(natsServer+".(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction(natsServer+"/ats.Register.func1"),
		goleak.IgnoreAnyFunction("orderpaid/platform/pgserver.startProcess.func1"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}
