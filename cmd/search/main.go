// Search finds orders by product, customer and state. With --rebuild it makes
// its index anew from the stream, beside the running service, and exits.
package main

import (
	"context"

	"orderpaid/platform/process"
	"orderpaid/services/search"
)

func main() {
	var cfg search.Config
	process.Main("search", about, &cfg, func(ctx context.Context) error { return search.Run(ctx, cfg) })
}

const about = `Finds orders by the words of their products, in any language, by customer and by state.

Example: search --database-url postgres://shop_search@db/shop_search

To make the index anew, add --rebuild: it works beside the running service.`
