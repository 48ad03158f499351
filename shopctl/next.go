package shopctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// Whoever types a command while nothing runs needs two things: who was asked
// where, which the errors of the clients say, and what to do next.

// What names the services and the databases, for hints.
const (
	setServices  = "SHOPCTL_SERVICES (order=http://127.0.0.1:9080 …) and SHOPCTL_TOKEN"
	setDatabases = "SHOPCTL_DATABASES (order=postgres://shop_relay@db/shop_order …)"
	setBroker    = "--nats-url or NATS_URL"
)

// A hint is an error that says what to do next.
type hint string

func (h hint) Error() string { return string(h) }

// errNobody: a command has nobody to ask.
func errNobody(set string) error {
	return hint("it is not known whom to ask: start scripts/demo in this folder, or set " + set)
}

// errAway: a command knows whom to ask, and none of them is there. The demo's
// file outlives the demo, so this is what a shop that was stopped looks like.
func errAway(set string) error {
	return hint("nobody could be asked: start scripts/demo in this folder, or name a shop that runs in " + set)
}

// errAbsent: a command knows whom to ask, and some are not there.
func errAbsent(set string) error {
	return hint("start what does not answer, as scripts/demo does in this folder, or name where it runs in " + set)
}

// Run runs the command that was chosen. If it failed because somebody was not
// there, and it has not said so itself, the error also says what to do next.
func Run(chosen *kong.Context) error {
	err := chosen.Run()
	var told hint
	var silent *opsapi.SilentError
	var answer *httpserver.Error
	switch {
	case err == nil || errors.As(err, &told):
		return err
	case errors.As(err, &silent):
		return errors.Join(err, errAbsent(setServices))
	case errors.As(err, &answer) && answer.Code == opsapi.CodeOwnerSilent:
		return errors.Join(err, errAbsent("the --ops-peer of the service that was asked"))
	case notThere(err): // services and brokers are known by their own errors, so this is a database
		return errors.Join(err, errAbsent(setDatabases))
	}
	return err
}

// notThere reports whether nobody listens at an address, or it leads nowhere.
func notThere(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// unanswered adds what to do next to the errors of so many services that were
// asked, if none of them answered. A refusal is an answer.
func unanswered(errs []error, asked int) []error {
	refused := func(err error) bool {
		var answer *httpserver.Error
		return errors.As(err, &answer)
	}
	if asked == 0 || len(errs) < asked || slices.ContainsFunc(errs, refused) {
		return errs
	}
	return append(errs, errAway(setServices))
}

// connect returns a broker that answers.
func connect(ctx context.Context, address process.Secret) (*natsbroker.Broker, error) {
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: string(address), Name: "shopctl"})
	if err != nil {
		return nil, noBroker(address, err)
	}
	if err := broker.Ready(ctx); err != nil {
		broker.Close()
		return nil, noBroker(address, err)
	}
	return broker, nil
}

// noBroker adds to the error of a broker that is not there which one it is, and
// what names another: the client's own words have no address. The password that
// an address may hold stays out.
func noBroker(address process.Secret, err error) error {
	if !errors.Is(err, nats.ErrNoServers) && !errors.Is(err, messaging.ErrUnavailable) && !notThere(err) {
		return err
	}
	var hosts []string
	for _, server := range strings.Split(string(address), ",") {
		u, parseErr := url.Parse(strings.TrimSpace(server))
		if parseErr != nil || u.Host == "" {
			return fmt.Errorf("%w; %w", err, hint(setBroker+" names the broker"))
		}
		hosts = append(hosts, u.Host)
	}
	return fmt.Errorf("no broker at %s: %w; %w", strings.Join(hosts, ", "), err, hint("start scripts/demo in this folder, or name another with "+setBroker))
}
