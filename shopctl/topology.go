package shopctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

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

// at adds to the error of a broker that is not there which one it is, and what
// names another: the client's own words have no address. The password that an
// address may hold stays out.
func (f TopologyFlags) at(err error) error {
	if !errors.Is(err, nats.ErrNoServers) {
		return err
	}
	var hosts []string
	for _, server := range strings.Split(string(f.NATSURL), ",") {
		u, parseErr := url.Parse(strings.TrimSpace(server))
		if parseErr != nil || u.Host == "" {
			return fmt.Errorf("%w; --nats-url or NATS_URL names the broker", err)
		}
		hosts = append(hosts, u.Host)
	}
	return fmt.Errorf("no broker at %s: %w; start scripts/demo in this folder, or name another with --nats-url or NATS_URL", strings.Join(hosts, ", "), err)
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
		return c.at(err)
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
	Update bool `help:"Also change what exists, where that keeps messages and positions."`
}

// Help is printed below the flags.
func (TopologyApply) Help() string {
	return "Without --update, anything that exists with other settings is an error that lists them.\n\n" +
		"Example: shopctl topology apply --nats-url nats://broker:4222 --replicas 3"
}

// Run makes the topology what it should be.
func (c TopologyApply) Run(ctx context.Context, out io.Writer) error {
	t := c.topology()
	t.Update = c.Update
	if err := natsbroker.EnsureTopology(ctx, string(c.NATSURL), t); err != nil {
		return c.at(err)
	}
	fmt.Fprintf(out, "stream %s and %d durables are as they should be\n", natsbroker.DefaultStream, len(t.Subscriptions))
	return nil
}
