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
	parsed := kong.Parse(&cli, kong.Name("shopctl"), kong.Description("Operates the shop."), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(os.Stdout, (*io.Writer)(nil)))
	parsed.FatalIfErrorf(parsed.Run())
}
