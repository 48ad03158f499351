// Command sim is the world outside the shop, for the demo and for tests: a
// mail server that keeps what it accepts, and a payment provider.
package main

import (
	"context"

	"orderpaid/demo/sim"
	"orderpaid/platform/process"
)

func main() {
	var cfg sim.Config
	process.Main("sim", "The world outside the shop: a mail sink and a payment provider.", &cfg, func(ctx context.Context) error {
		return sim.Run(ctx, cfg)
	})
}
