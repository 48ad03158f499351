// Command console keeps the audit trail and serves the shop's and the
// operators' pages.
package main

import (
	"context"

	"orderpaid/platform/process"
	"orderpaid/services/console"
)

func main() {
	var cfg console.Config
	process.Main("console", "Keeps the audit trail of every event and serves the pages of customers and operators.", &cfg, func(ctx context.Context) error {
		return console.Run(ctx, cfg)
	})
}
