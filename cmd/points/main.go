// Command points awards points for paid orders and takes them back for
// refunds.
package main

import (
	"context"

	"orderpaid/platform/process"
	"orderpaid/services/points"
)

func main() {
	var cfg points.Config
	process.Main("points", "Awards points for paid orders and takes them back for refunds.", &cfg, func(ctx context.Context) error {
		return points.Run(ctx, cfg)
	})
}
