package shopctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/opsapi"
)

// ExceptionsList shows exceptions.
type ExceptionsList struct {
	Services
	Service string `help:"Only those of this service. Defaults to all."`
	State   string `enum:"waiting,open,held,applied,settled,any" default:"waiting" help:"open (a person must act), held (waits for its payment), waiting (both), applied, settled or any. Defaults to waiting."`
	Order   string `help:"Only those about this order."`
	Limit   int    `default:"100" help:"Most lines for each service. Defaults to 100."`
}

// Help is printed below the flags.
func (ExceptionsList) Help() string {
	return `The payment provider announced it and no order can follow: a wrong amount, a second payment, a refund without its payment.
Money may have moved.

Example: shopctl exceptions list`
}

// ownedException is an exception with its service.
type ownedException struct {
	Service string `json:"service"`
	opsapi.Exception
}

// Run prints a line for each.
func (c ExceptionsList) Run(ctx context.Context, out io.Writer) error {
	if err := atLeastOne("limit", c.Limit); err != nil {
		return err
	}
	clients, err := c.clients(c.Service)
	if err != nil {
		return err
	}
	state := c.State
	if state == "any" {
		state = ""
	}
	all := askEach(clients, func(a *opsapi.Client) (opsapi.Page[opsapi.Exception], error) {
		return a.Exceptions(ctx, state, c.Order, "", c.Limit)
	},
		func(service string, e opsapi.Exception) ownedException { return ownedException{service, e} })
	return all.write(out, c.JSON, "id\tstate\treason\tannounced\tabout\tpayment\tamount\ttimes\tlast\tsays", ownedException.row)
}

func (e ownedException) row() []string {
	return []string{fmt.Sprintf("%s/%d", e.Service, e.ExceptionID), e.State, e.Reason, e.Kind, e.Key,
		e.About["payment_id"], e.About["amount"], fmt.Sprint(e.Occurrences), moment(&e.LastSeenAt), e.Says}
}

// ExceptionsShow shows one with its history.
type ExceptionsShow struct {
	Services
	ID string `arg:"" help:"The exception: order/12."`
}

// Help is printed below the flags.
func (ExceptionsShow) Help() string {
	return `What the provider sent is shown without its values: they may be personal.

Example: shopctl exceptions show order/12`
}

// Run prints it.
func (c ExceptionsShow) Run(ctx context.Context, out io.Writer) error {
	service, id, err := splitRef(c.ID)
	if err != nil {
		return err
	}
	client, err := c.client(service)
	if err != nil {
		return err
	}
	e, err := client.Exception(ctx, id)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, e)
	}
	rows := [][]string{{"state", e.State}, {"reason", e.Reason + ": " + e.Says}, {"announced", e.Kind}, {"about", e.Key}}
	for _, name := range slices.Sorted(maps.Keys(e.About)) {
		rows = append(rows, []string{name, e.About[name]})
	}
	rows = append(rows, []string{"times", fmt.Sprint(e.Occurrences)}, []string{"first seen", moment(&e.FirstSeenAt)},
		[]string{"last seen", moment(&e.LastSeenAt)}, []string{"settled", moment(e.SettledAt)}, []string{"payload", fmt.Sprintf("%d bytes", e.Bytes)})
	if err := table(out, c.ID+"\t", rows); err != nil {
		return err
	}
	if len(e.Masked) > 0 {
		if err := printJSON(out, e.Masked); err != nil {
			return err
		}
	}
	var actions [][]string
	for _, a := range e.Actions {
		actions = append(actions, []string{moment(&a.At), a.Actor, a.Action, a.Reason})
	}
	return history(out, actions)
}

// ExceptionsSettle ends exceptions.
type ExceptionsSettle struct {
	Services
	Reason
	IDs []string `arg:"" name:"ids" help:"Exceptions, such as order/12."`
}

// Help is printed below the flags.
func (ExceptionsSettle) Help() string {
	return `Settling moves no money and changes no order: do first what is to be done, with the provider. The rows stay, with your name
and your reason, and the same announcement does not open them again. A held refund that was settled is opened again if its
payment is announced after all.

Example: shopctl exceptions settle order/12 --reason "paid twice; the provider has paid one back, their case 4711"`
}

// Run says how many were settled.
func (c ExceptionsSettle) Run(ctx context.Context, out io.Writer) error {
	groups, err := byService(c.IDs)
	if err != nil {
		return err
	}
	total := 0
	for _, service := range slices.Sorted(maps.Keys(groups)) {
		client, err := c.client(service)
		if err != nil {
			return err
		}
		changed, err := client.SettleExceptions(ctx, opsapi.ExceptionSelection{IDs: groups[service], Reason: c.Reason.Reason})
		if err != nil {
			return err
		}
		total += changed.Changed
		fmt.Fprintf(out, "%s: %d settled", service, changed.Changed)
		if rest := len(groups[service]) - changed.Changed; rest > 0 && changed.Changed > 0 {
			fmt.Fprintf(out, "; %d did not wait for anybody", rest)
		}
		fmt.Fprintln(out)
		if changed.Changed == 0 {
			if err := tellWhyNot(ctx, out, client, groups[service]); err != nil {
				return err
			}
		}
	}
	if total == 0 {
		return errors.New("nothing was settled: none of them waits for anybody")
	}
	return nil
}

// tellWhyNot says what the exceptions are, none of which could be settled.
func tellWhyNot(ctx context.Context, out io.Writer, client *opsapi.Client, ids []string) error {
	for _, id := range ids {
		e, err := client.Exception(ctx, id)
		var answer *httpserver.Error
		switch {
		case errors.As(err, &answer) && answer.Status == http.StatusNotFound:
			fmt.Fprintf(out, "  %s/%s does not exist\n", client.Service(), id)
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "  %s/%s is %s\n", client.Service(), id, e.State)
		}
	}
	return nil
}
