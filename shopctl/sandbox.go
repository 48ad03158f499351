package shopctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/operator"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
	"orderpaid/services/notify"
	"orderpaid/services/order"
	"orderpaid/services/points"
	"orderpaid/services/search"
)

// SandboxFlags say where a copy of a database is made.
type SandboxFlags struct {
	AdminURL    process.Secret            `name:"admin-url" env:"SHOPCTL_ADMIN_URL" placeholder:"URL" help:"The cluster, as a role that may create databases and read the service's."`
	Database    string                    `help:"The service's database. Defaults to that of SHOPCTL_DATABASES, or else to shop_ and the service's name."`
	NATSURL     process.Secret            `name:"nats-url" env:"NATS_URL" placeholder:"URL" help:"The broker, for replays from the stream."`
	PayloadKeys process.Secret            `name:"payload-keys" env:"PAYLOAD_KEYS" placeholder:"NAME:BASE64" help:"The service's keys, for replays from failures with sealed payloads."`
	Databases   map[string]process.Secret `name:"databases" env:"SHOPCTL_DATABASES" mapsep:" " hidden:""`
	Keep        bool                      `help:"Keep the copy, to look into it. It holds customers' data: drop it yourself."`
}

// sandboxes builds each service's consumer on a copy of its database.
var sandboxes = map[string]func(*pgxpool.Pool, messaging.Subscriber, messaging.ConsumerConfig) (*messaging.Consumer, error){
	"order": order.Sandbox, "points": points.Sandbox, "notify": notify.Sandbox, "search": search.Sandbox,
}

// database returns the name of the database that is to be copied.
func (f SandboxFlags) database(service string) string {
	known := ""
	if cfg, err := pgx.ParseConfig(string(f.Databases[service])); err == nil && f.Databases[service] != "" {
		known = cfg.Database
	}
	return cmp.Or(f.Database, known, "shop_"+service)
}

func (f SandboxFlags) run(ctx context.Context, out io.Writer, s Services, req opsapi.ReplayRequest) error {
	if f.AdminURL == "" {
		return errors.New("--sandbox needs --sandbox-admin-url or SHOPCTL_ADMIN_URL")
	}
	client, err := s.ownerOf(ctx, req.Consumer)
	if err != nil {
		return err
	}
	build, known := sandboxes[client.Service()]
	if !known {
		return fmt.Errorf("the service %s has no sandbox", client.Service())
	}
	var broker *natsbroker.Broker
	if req.From.Source == "stream" {
		if broker, err = connect(ctx, f.NATSURL); err != nil {
			return err
		}
		defer broker.Close()
	}
	report, err := operator.Sandbox(ctx, operator.SandboxConfig{
		AdminURL: f.AdminURL, Database: f.database(client.Service()), Consumer: build, Keep: f.Keep,
		API: opsapi.Config{Service: client.Service(), Broker: broker,
			Flags: opsapi.Flags{OpsPeers: s.Services, OpsPeerToken: s.Token, PayloadKeys: f.PayloadKeys}},
	}, req)
	if notThere(err) { // the cluster: who is asked for events answers in its own words
		return errors.Join(err, hint("start scripts/demo in this folder, or name the cluster with --sandbox-admin-url or SHOPCTL_ADMIN_URL"))
	}
	if err != nil {
		return err
	}
	if s.JSON {
		return printJSON(out, report)
	}
	writePlan(out, report.Plan)
	fmt.Fprintf(out, "copied by %s as %s; on the copy, %d of %d are done:\n", report.Copied, report.Database, report.Replay.Done, report.Replay.Items)
	return printJSON(out, report.Replay.Report)
}
