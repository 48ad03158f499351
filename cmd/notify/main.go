// Command notify tells customers by mail what has become of their orders.
package main

import (
	"context"

	"orderpaid/platform/process"
	"orderpaid/services/notify"
)

func main() {
	var cfg notify.Config
	process.Main("notify", "Tells customers by mail what has become of their orders.", &cfg, func(ctx context.Context) error {
		return notify.Run(ctx, cfg)
	})
}
