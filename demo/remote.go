package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"orderpaid/platform/process"
)

// A Site is a shop that the check can look into, whoever runs it.
type Site struct {
	Databases map[string]string // address of each service's database, by service
	NATSURL   string
	SimURL    string

	// Lag is how long an event may wait for a relay without being called late:
	// somebody else may be placing orders. Defaults to not at all.
	Lag time.Duration
}

// Site returns where the stack's parts are.
func (s *Stack) Site() Site {
	site := Site{Databases: map[string]string{}, NATSURL: s.NATSURL, SimURL: s.URL["sim"]}
	for _, service := range services {
		site.Databases[service] = s.DSN(Database(service), ownerRole)
	}
	return site
}

// CheckCommand checks a shop that runs somewhere else, for example in
// containers: it places orders, waits, and compares.
type CheckCommand struct {
	OrderURL      string                    `name:"order-url" env:"ORDER_URL" required:"" placeholder:"URL" help:"The order service."`
	SimURL        string                    `name:"sim-url" env:"SIM_URL" required:"" placeholder:"URL" help:"The mail sink."`
	Databases     map[string]process.Secret `name:"database" env:"CHECK_DATABASES" mapsep:" " required:"" placeholder:"NAME=URL" help:"The database of each service, as a role that may read everything."`
	NATSURL       process.Secret            `name:"nats-url" env:"NATS_URL" required:"" placeholder:"URL" help:"The broker, as a user who may read the stream."`
	WebhookSecret string                    `name:"webhook-secret-file" env:"WEBHOOK_SECRET_FILE" required:"" placeholder:"FILE" help:"File with what payments are announced with."`

	Orders  int    `default:"200" help:"How many orders to place. Defaults to 200."`
	Rate    int    `help:"Orders begun in a second. Defaults to as many as the shop takes."`
	Journal string `env:"JOURNAL_DIR" default:"." placeholder:"DIR" help:"Folder of the journals. Defaults to the working directory."`
	Only    string `enum:"load,compare,both" default:"both" help:"load: place the orders and keep the journal. compare: compare the journals that are there. Defaults to both."`
}

// Help is printed below the flags.
func (CheckCommand) Help() string {
	return "Exits with 0 only if nothing differs.\n\nExample: docker compose run --rm check --orders 500"
}

// Run returns when the table is printed.
func (c CheckCommand) Run(ctx context.Context, out io.Writer) error {
	site := Site{Databases: map[string]string{}, NATSURL: string(c.NATSURL), SimURL: c.SimURL, Lag: 2 * time.Second}
	for _, service := range services {
		if site.Databases[service] = string(c.Databases[service]); site.Databases[service] == "" {
			return fmt.Errorf("check: no database of %s is given", service)
		}
	}
	journals, err := c.journals(ctx, out)
	if err != nil || c.Only == "load" {
		return err
	}
	var entries []Entry
	for n, journal := range journals {
		more, err := ReadJournal(journal)
		if err != nil {
			return err
		}
		entries = append(entries, renumbered(more, n)...)
	}
	report, err := verify(ctx, site, entries, 2*time.Minute, func(Progress) {})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "all was done after %.1f s\n\n%s", report.Waited.Seconds(), report)
	if !report.OK {
		return ExitError(1)
	}
	return nil
}

// journals places the orders, if that is asked for, and returns what to
// compare.
func (c CheckCommand) journals(ctx context.Context, out io.Writer) ([]string, error) {
	if c.Only == "compare" {
		found, err := filepath.Glob(filepath.Join(c.Journal, "*.jsonl"))
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("check: no journal in %s", c.Journal)
		}
		return found, err
	}
	secret, err := os.ReadFile(c.WebhookSecret)
	if err != nil {
		return nil, fmt.Errorf("check: webhook secret: %w", err)
	}
	started := time.Now()
	journal := filepath.Join(c.Journal, now().Format("20060102T150405.000000")+".jsonl")
	err = Load(ctx, LoadConfig{OrderURL: c.OrderURL, IssuerURL: c.SimURL, WebhookSecret: strings.TrimSpace(string(secret)),
		Journal: journal, Orders: c.Orders, Rate: c.Rate})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%d orders in %.1f s\n", c.Orders, time.Since(started).Seconds())
	return []string{journal}, nil
}

// renumbered keeps the orders of several journals apart: each client counts
// from 1.
func renumbered(entries []Entry, journal int) []Entry {
	const most = 1 << 32 // orders of one client
	for i := range entries {
		entries[i].Order += journal * most
	}
	return entries
}

// SteadyCommand keeps a shop busy until it is stopped, so that there is
// something to see. It needs no journal: nobody compares.
type SteadyCommand struct {
	SimURL        string `name:"sim-url" env:"SIM_URL" placeholder:"URL" help:"Who gives customers their tokens. Empty: the shop asks for none."`
	OrderURL      string `name:"order-url" env:"ORDER_URL" required:"" placeholder:"URL" help:"The order service."`
	WebhookSecret string `name:"webhook-secret-file" env:"WEBHOOK_SECRET_FILE" required:"" placeholder:"FILE" help:"File with what payments are announced with."`
	Journal       string `env:"JOURNAL_DIR" default:"." placeholder:"DIR" help:"Folder of the journal, which begins anew every 1000 orders. Defaults to the working directory."`
	Rate          int    `default:"2" help:"Orders begun in a second. Defaults to 2."`
}

// Help is printed below the flags.
func (SteadyCommand) Help() string {
	return "Example: demo steady --order-url http://127.0.0.1:8080 --rate 2"
}

// Run ends with ctx.
func (c SteadyCommand) Run(ctx context.Context) error {
	secret, err := os.ReadFile(c.WebhookSecret)
	if err != nil {
		return fmt.Errorf("steady load: webhook secret: %w", err)
	}
	err = steady(ctx, LoadConfig{OrderURL: c.OrderURL, IssuerURL: c.SimURL, WebhookSecret: strings.TrimSpace(string(secret)),
		Journal: filepath.Join(c.Journal, "steady.jsonl"), Rate: c.Rate, Seed: uint64(now().UnixNano())})
	return stopped(ctx, err)
}

// LookCommand says where to look.
type LookCommand struct {
	Edge    string `default:"http://127.0.0.1:8080" env:"EDGE_URL" placeholder:"URL" help:"Where the shop can be reached from the reader's machine."`
	Console string `default:"http://127.0.0.1:8084" env:"CONSOLE_URL" placeholder:"URL" help:"Where the console can be reached."`
	Sim     string `default:"http://127.0.0.1:8089" env:"SIM_PUBLIC_URL" placeholder:"URL" help:"Where the world outside can be reached."`
}

// Run prints it.
func (c LookCommand) Run(out io.Writer) error {
	_, err := fmt.Fprintf(out, `
The shop is up. In another terminal:

  the pages    %[3]s
  your token   TOKEN=$(curl -s "%[2]s/token?user=you")
  your points  curl -s -H "Authorization: Bearer $TOKEN" %[1]s/v1/users/you/points
  products     curl -s "%[1]s/v1/products?limit=3"
  mails        curl -s "%[2]s/mails?limit=5"
  the proof    docker compose run --rm check
  break it     docker compose kill -s KILL relay points; docker compose up -d
  logs         docker compose logs -f order relay points
  end it       docker compose down -v
`, c.Edge, c.Sim, c.Console)
	return err
}
