package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"orderpaid/platform/pgserver"
	"orderpaid/platform/process"
)

// GuardCommand is [Guard] for the command line.
type GuardCommand struct {
	Program []string `arg:"" passthrough:""`
}

// Run returns when the program has ended, with its exit code.
func (c GuardCommand) Run() error {
	program := c.Program
	if len(program) > 0 && program[0] == "--" {
		program = program[1:]
	}
	if len(program) == 0 {
		return errors.New("guard: no program given")
	}
	code, err := Guard(program[0], program[1:])
	if err == nil && code != 0 {
		err = ExitError(code)
	}
	return err
}

// PostgresCommand runs another command, usually go test, with a PostgreSQL
// that is gone afterwards.
type PostgresCommand struct {
	Command []string `arg:"" passthrough:"" help:"The command; it finds the server's address in ORDERPAID_TEST_PG."`
}

// Help is printed below the flags.
func (PostgresCommand) Help() string { return "Example: demo postgres -- go test ./services/..." }

// testDSN is where platform/pgtest looks for the address of a superuser.
const testDSN = "ORDERPAID_TEST_PG"

// Run returns with the command's exit code. If that is not zero the server's
// folder stays, with the databases of the tests that failed; after an interrupted
// run nothing stays.
func (c PostgresCommand) Run(ctx context.Context) (err error) {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return errors.New("no command given")
	}
	root, err := FindRoot()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "orderpaid-test-")
	if err != nil {
		return err
	}
	server, err := StartPostgres(ctx, root, pgserver.Config{
		Dir: dir, Unsafe: true, MaxConnections: 500, SharedBuffersMB: 128,
		Settings: map[string]string{
			"max_wal_size": "256MB", // thrown-away databases would fill the disk with a gigabyte of log
			"autovacuum":   "off",   // its sessions stop clones of templates
		},
	})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	err = runWith(ctx, command, testDSN+"="+server.DSN("postgres"))
	if stopErr := server.Stop(); stopErr != nil {
		return errors.Join(err, stopErr)
	}
	if ctx.Err() != nil {
		err = ExitError(130) // as a shell says it; what was under way has not failed
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "The databases of failed tests are kept in %[1]s. Look at them with\n  %[2]s\nand remove them with\n  rm -rf %[1]s\n", server.Dir, server.Command())
		return err
	}
	return errors.Join(err, os.RemoveAll(server.Dir), os.RemoveAll(dir))
}

// runWith runs a command in the foreground. When ctx ends it is asked to end.
func runWith(ctx context.Context, command []string, env string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return ExitError(exit.ExitCode())
	}
	if err != nil { // a signal ended it: nothing else would say so
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return nil
}

// LoadCommand asks a shop that runs somewhere for orders.
type LoadCommand struct {
	OrderURL      string         `name:"order-url" env:"ORDER_URL" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The order service. Defaults to http://127.0.0.1:8080."`
	WebhookSecret process.Secret `name:"webhook-secret" env:"WEBHOOK_SECRET" required:"" placeholder:"WHSEC" help:"What payments are announced with: whsec_ and base64."`
	Journal       string         `required:"" placeholder:"FILE" help:"The file to write every answer to; it must not exist."`
	Orders        int            `default:"500" help:"How many orders. Defaults to 500."`
	Users         int            `default:"40" help:"How many customers place them. Defaults to 40."`
	Workers       int            `default:"8" help:"How many orders are in work at once. Defaults to 8."`
	Rate          int            `help:"Orders begun in a second. Defaults to as many as the shop takes."`
	Seed          uint64         `default:"1" help:"Of everything that is drawn. Defaults to 1."`
}

// Help is printed below the flags.
func (LoadCommand) Help() string {
	return "Orders are paid, refunded and cancelled, with callbacks that come late, twice and reversed.\n\n" +
		"Example: WEBHOOK_SECRET=whsec_… shopctl load --order-url http://127.0.0.1:8080 --orders 1000 --journal answers.jsonl"
}

// Run returns when every request has a definite answer.
func (c LoadCommand) Run(ctx context.Context, out io.Writer) error {
	started := time.Now()
	err := Load(ctx, LoadConfig{
		OrderURL: c.OrderURL, WebhookSecret: string(c.WebhookSecret), Journal: filepath.Clean(c.Journal),
		Orders: c.Orders, Users: c.Users, Workers: c.Workers, Rate: c.Rate, Seed: c.Seed,
	})
	if errors.Is(err, errNoShop) {
		return fmt.Errorf("%w: start scripts/demo in this folder, or name another with --order-url or ORDER_URL", err)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d orders in %.1f s; every answer is in %s\n", c.Orders, time.Since(started).Seconds(), c.Journal)
	return nil
}
