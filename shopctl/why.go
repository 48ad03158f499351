package shopctl

import (
	"context"
	"io"
)

// Why tells what became of something.
type Why struct {
	Services
	Key string `arg:"" help:"The id of an order, a payment, an event or a customer."`
}

// Help is printed below the flags.
func (Why) Help() string {
	return `Asks every service and joins what they say: a sentence that a customer could read, in English and Chinese; each event
with its way to the broker and what each consumer made of it; the points, the mail and the document; what people did.
A service that does not answer is named, and the rest is shown all the same.

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
		return printJSON(out, explanation)
	}
	return explanation.Write(out)
}
