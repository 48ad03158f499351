package shopctl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// Why tells what became of something.
type Why struct {
	Services
	Key  string `arg:"" help:"The id of an order, a payment, an event or a customer."`
	Lang string `enum:"auto,en,zh" default:"auto" help:"The language of the customer's sentence: en or zh. Defaults to that of LC_ALL or LANG. JSON has both."`
}

// Help is printed below the flags.
func (Why) Help() string {
	return `Asks every service and joins what they say: a sentence that a customer could read; each event
with its way to the broker and what each consumer made of it; the points, the mail and the document; what people did.
A service that does not answer is named, and the rest is shown all the same. The exit code is 1 if nothing is known of the id.

Example: shopctl why ord_0197f3a2c4de7b1a9c55d2e8f0a1b2c3`
}

// Run prints the explanation.
func (c Why) Run(ctx context.Context, out io.Writer) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	explanation, err := fleet.Why(ctx, c.Key)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(out, explanation)
	} else {
		err = explanation.Write(out, c.chinese())
	}
	if err == nil && len(explanation.Trails) == 0 {
		err = c.errNotFound(len(explanation.Silent))
	}
	return err
}

// errNotFound: only who answered can be said not to know the id.
func (c Why) errNotFound(silent int) error {
	switch {
	case silent == 0:
		return errUnknown(c.Key)
	case silent < len(c.Services.Services):
		return fmt.Errorf("%w by those who answered", errUnknown(c.Key))
	}
	return errAway(setServices)
}

// chinese reads the locale as every program does: LC_ALL goes before LANG.
func (c Why) chinese() bool {
	if c.Lang == "auto" {
		return strings.HasPrefix(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LANG")), "zh")
	}
	return c.Lang == "zh"
}

// errUnknown: whoever answered has never heard of the id. A script must not take
// a mistyped id for an order without events.
func errUnknown(key string) error { return fmt.Errorf("nothing is known of %q", key) }
