package shopctl

import (
	"context"
	"fmt"
	"io"

	"orderpaid/platform/opsapi"
)

// DoubtsList shows effects of which nobody knows whether they happened.
type DoubtsList struct {
	Services
	Limit int `default:"100" help:"Most lines for each service. Defaults to 100."`
}

// Help is printed below the flags.
func (DoubtsList) Help() string {
	return `The mail server took a mail and never said so. Its log tells whether the mail arrived: look for the id, which is the
Message-ID before the @.

Example: shopctl doubts list`
}

// ownedDoubt is a doubt with its service.
type ownedDoubt struct {
	Service string `json:"service"`
	opsapi.Doubt
}

// Run prints a line for each.
func (c DoubtsList) Run(ctx context.Context, out io.Writer) error {
	if err := atLeastOne("limit", c.Limit); err != nil {
		return err
	}
	clients, err := c.clients("")
	if err != nil {
		return err
	}
	all := askEach(clients, func(a *opsapi.Client) (opsapi.Page[opsapi.Doubt], error) { return a.Doubts(ctx, "", c.Limit) },
		func(service string, d opsapi.Doubt) ownedDoubt { return ownedDoubt{service, d} })
	return all.write(out, c.JSON, "id\twhat\tcode\tabout\tsince", ownedDoubt.row)
}

func (d ownedDoubt) row() []string {
	return []string{d.Service + "/" + d.ID, d.What, d.Code, d.Key, moment(&d.Since)}
}

// DoubtsSettle ends one.
type DoubtsSettle struct {
	Services
	Reason
	ID      string `arg:"" help:"The effect, such as notify/ntf_0197f3a2c4de7b1a9c55d2e8f0a1b2c3."`
	Outcome string `required:"" enum:"happened,again" help:"happened: it arrived, and is counted as sent. again: it did not, or was given up, and is sent once more under the same Message-ID."`
}

// Help is printed below the flags.
func (DoubtsSettle) Help() string {
	return `Example: shopctl doubts settle notify/ntf_0197f3a2c4de7b1a9c55d2e8f0a1b2c3 --outcome happened --reason "it is in the server's log at 14:02"`
}

// Run says what was done.
func (c DoubtsSettle) Run(ctx context.Context, out io.Writer) error {
	service, id, err := splitRef(c.ID)
	if err != nil {
		return err
	}
	client, err := c.client(service)
	if err != nil {
		return err
	}
	if err := client.SettleDoubt(ctx, opsapi.DoubtDecision{ID: id, Outcome: c.Outcome, Reason: c.Reason.Reason}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", c.ID, c.Outcome)
	return err
}
