// Command shopctl is the operator's tool: it tells what became of an order, and
// mends what went wrong.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"orderpaid/demo"
	"orderpaid/platform/process"
	"orderpaid/shopctl"
)

type commands struct {
	shopctl.Commands
	Load demo.LoadCommand `cmd:"" help:"Place and pay orders, and keep a journal of every answer."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if _, err := shopctl.LoadEnv(); err != nil {
		fmt.Fprintln(os.Stderr, "shopctl:", err)
		os.Exit(1)
	}
	var cli commands
	parsed := process.ParseCommands(&cli, kong.Name("shopctl"), kong.Description(about), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(os.Stdout, (*io.Writer)(nil)))
	parsed.FatalIfErrorf(shopctl.Run(parsed))
}

const about = `Tells what became of an order, shows what waits or has failed, and mends it: every service is asked over its API for
operators, and what is done is kept with a name and a reason.

In a checkout whose scripts/demo is running it needs no flags. Elsewhere it reads SHOPCTL_SERVICES, SHOPCTL_TOKEN,
SHOPCTL_DATABASES and NATS_URL, or the file that SHOPCTL_ENV_FILE names. What to do in which case: docs/05-operate.md.

Example: shopctl why ord_0197f3a2c4de7b1a9c55d2e8f0a1b2c3`
