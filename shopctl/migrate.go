package shopctl

import (
	"context"
	"fmt"
	"io"
	"time"

	"orderpaid/platform/postgres"
)

// Migrate brings databases to the schema of this build.
type Migrate struct{ Databases }

// Help is printed below the flags.
func (Migrate) Help() string {
	return "The role must own the database. Safe to repeat, and to run twice at once. Old code runs on the new schema.\n\n" +
		"Example: shopctl migrate --database order=postgres://shop_owner@db/shop_order"
}

// Run migrates one database after the other and stops at the first error.
func (c Migrate) Run(ctx context.Context, out io.Writer) error {
	names, err := c.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		started := time.Now()
		if err := postgres.Migrate(ctx, string(c.Databases.Databases[name]), name); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is up to date (%.1f s)\n", name, time.Since(started).Seconds())
	}
	return nil
}
