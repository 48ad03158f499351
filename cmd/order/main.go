// Command order runs the order service: the catalogue, orders, the payment
// provider's callbacks, and what is still on its way after a payment.
package main

import (
	"context"

	"orderpaid/platform/process"
	"orderpaid/services/order"
)

func main() {
	var cfg order.Config
	process.Main("order", "Takes orders, learns of their payments, and tells the other services.", &cfg, func(ctx context.Context) error {
		return order.Run(ctx, cfg)
	})
}
