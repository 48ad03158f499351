// Command shopctl is the operator's tool: topology, migrations, outboxes, load.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"orderpaid/demo"
	"orderpaid/shopctl"
)

type commands struct {
	Topology struct {
		Plan  shopctl.TopologyPlan  `cmd:"" help:"Show how JetStream differs from what the services need."`
		Apply shopctl.TopologyApply `cmd:"" help:"Create the stream and the durables that are missing."`
	} `cmd:"" help:"The stream of all events, and one durable for each consumer."`
	Migrate shopctl.Migrate `cmd:"" help:"Bring databases to the schema of this build."`
	Outbox  struct {
		Summary shopctl.OutboxSummary `cmd:"" help:"Show how far each outbox is."`
		List    shopctl.OutboxList    `cmd:"" help:"Show events that are not published, and why."`
	} `cmd:"" help:"Events between a commit and the broker."`
	Load demo.LoadCommand `cmd:"" help:"Place and pay orders, and keep a journal of every answer."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var cli commands
	parsed := kong.Parse(&cli, kong.Name("shopctl"), kong.Description("Operates the shop."), kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(os.Stdout, (*io.Writer)(nil)))
	parsed.FatalIfErrorf(parsed.Run())
}
