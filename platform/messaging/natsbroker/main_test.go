package natsbroker_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No test may leave a goroutine of the broker or of the client behind. The
// server leaves some of its own where it is stopped in the middle of a batch:
// the store of that batch stays open until the process ends.
func TestMain(m *testing.M) {
	const server = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction(server+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction(server+".(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction(server+"/ats.Register.func1"))
}
