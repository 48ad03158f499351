package demo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// natsConfig is the broker's whole configuration. sync_interval: always is the
// line that matters: without it the server acknowledges what it has not yet
// written to the disk, and a power cut takes up to two minutes of
// acknowledged events back.
const natsConfig = `# Written by the demo at each start.
server_name: orderpaid
listen: %s
http: %s
jetstream {
  store_dir: %s
  sync_interval: always
}
`

// natsSpec returns the child that runs a nats-server with its data in
// <dir>/nats. nats-server does not end with its parent, so a guard runs it.
func natsSpec(bin, dir string, client, monitor string) (Spec, error) {
	config := filepath.Join(dir, "nats-server.conf")
	text := fmt.Sprintf(natsConfig, client, monitor, strconv.Quote(filepath.Join(dir, "nats")))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return Spec{}, fmt.Errorf("configure nats-server: %w", err)
	}
	return Spec{
		Name:  "nats-server",
		Path:  filepath.Join(bin, "demo"),
		Args:  []string{"guard", "--", filepath.Join(bin, "nats-server"), "--config", config},
		Ready: httpReady("http://" + monitor + "/healthz"), // also says whether the streams are recovered
	}, nil
}

// httpReady asks an address for a 2xx.
func httpReady(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}
