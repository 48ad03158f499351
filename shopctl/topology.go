package shopctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/process"
	"orderpaid/services/console"
	"orderpaid/services/notify"
	"orderpaid/services/order"
	"orderpaid/services/points"
	"orderpaid/services/search"
)

// Topology returns what the services of this build need in JetStream: the
// stream and one durable for each of their consumers.
func Topology() natsbroker.Topology {
	return natsbroker.Topology{Subscriptions: slices.Concat(
		order.Subscriptions(), points.Subscriptions(), notify.Subscriptions(), search.Subscriptions(), console.Subscriptions())}
}

// TopologyFlags say where the broker is and how large the stream may be.
type TopologyFlags struct {
	NATSURL  process.Secret `name:"nats-url" env:"NATS_URL" default:"nats://127.0.0.1:4222" placeholder:"URL" help:"The broker, as the owner of the topology. Defaults to nats://127.0.0.1:4222."`
	Replicas int            `help:"Servers that store each event. Defaults to 1; 3 in production."`
	MaxBytes int64          `help:"Bound of the stream on disk; when it is reached, outboxes fill up instead. Defaults to 4 GiB."`
	MaxAge   time.Duration  `help:"How long events stay, read or not. Defaults to 7 days."`
}

func (f TopologyFlags) topology() natsbroker.Topology {
	t := Topology()
	t.Replicas, t.MaxBytes, t.MaxAge = f.Replicas, f.MaxBytes, f.MaxAge
	return t
}

// TopologyPlan shows what apply would change.
type TopologyPlan struct{ TopologyFlags }

// Help is printed below the flags.
func (TopologyPlan) Help() string {
	return "Exits with 1 if there is a difference.\n\nExample: shopctl topology plan --nats-url nats://broker:4222 --replicas 3"
}

// ErrDifferences: the plan is not empty.
var ErrDifferences = errors.New("the topology is not as it should be")

// Run prints one line for each difference.
func (c TopologyPlan) Run(ctx context.Context, out io.Writer) error {
	changes, err := natsbroker.PlanTopology(ctx, string(c.NATSURL), c.topology())
	if err != nil {
		return noBroker(c.NATSURL, err)
	}
	for _, change := range changes {
		how := "can be changed in place"
		if !change.InPlace {
			how = "cannot be changed without losing positions or messages"
		}
		fmt.Fprintf(out, "%s (%s)\n", change, how)
	}
	if len(changes) > 0 {
		return ErrDifferences
	}
	fmt.Fprintln(out, "nothing to do")
	return nil
}

// TopologyApply creates what is missing.
type TopologyApply struct {
	TopologyFlags
	Update bool     `help:"Also change what exists, where that keeps messages and positions."`
	Anew   []string `placeholder:"DURABLE" help:"Durables to delete and make again, if they are ahead of the stream. They read everything once more; what had its effect changes nothing."`
}

// Help is printed below the flags.
func (TopologyApply) Help() string {
	return "Without --update, anything that exists with other settings is an error that lists them.\n\n" +
		"Example: shopctl topology apply --nats-url nats://broker:4222 --replicas 3"
}

// Run makes the topology what it should be.
func (c TopologyApply) Run(ctx context.Context, out io.Writer) error {
	t := c.topology()
	t.Update, t.Anew = c.Update, c.Anew
	if err := natsbroker.EnsureTopology(ctx, string(c.NATSURL), t); err != nil {
		return noBroker(c.NATSURL, err)
	}
	fmt.Fprintf(out, "stream %s and %d durables are as they should be\n", natsbroker.DefaultStream, len(t.Subscriptions))
	return nil
}
