// Command demo runs the whole shop on one machine, with a load, or checks it.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"orderpaid/demo"
	"orderpaid/platform/process"
)

type commands struct {
	Run      demo.Command         `cmd:"" default:"withargs" help:"Run the shop (the default)."`
	Postgres demo.PostgresCommand `cmd:"" help:"Run a command with a throw-away PostgreSQL."`
	Check    demo.CheckCommand    `cmd:"" help:"Check a shop that runs somewhere else."`
	Steady   demo.SteadyCommand   `cmd:"" help:"Keep a shop busy until stopped."`
	Secrets  demo.SecretsCommand  `cmd:"" help:"Make the secrets of a shop in containers."`
	Look     demo.LookCommand     `cmd:"" hidden:"" help:"Say where to look."`
	Guard    demo.GuardCommand    `cmd:"" hidden:"" help:"Run a program and end it when stdin closes."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var grammar any = &commands{}
	name := "demo"
	if len(os.Args) > 1 && os.Args[1] == "run" { // by scripts/demo, which is what people can type
		grammar, name, os.Args = &demo.Command{}, "scripts/demo", slices.Delete(os.Args, 1, 2)
	}
	parsed := process.ParseCommands(grammar, kong.Name(name), kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(os.Stdout, (*io.Writer)(nil)), kong.Description(
		"Orders are paid; points, mail and search follow: the whole shop in child processes on this machine."))
	err := parsed.Run()
	if exit := demo.ExitError(0); errors.As(err, &exit) {
		os.Exit(int(exit))
	}
	parsed.FatalIfErrorf(err)
}
