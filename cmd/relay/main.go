// Relay moves staged events from any number of outbox databases to the broker.
// Start as many as you like: they divide the shards of each outbox among
// themselves, and those of one that dies go to the others.
package main

import (
	"context"

	"orderpaid/platform/process"
)

func main() {
	var cfg config
	process.Main("relay", about, &cfg, func(ctx context.Context) error { return run(ctx, cfg) })
}

const about = `Publishes the events that services have staged in their outboxes.

Example: relay --database order=postgres://shop_relay@db/shop_order --database points=postgres://shop_relay@db/shop_points`
