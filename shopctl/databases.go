package shopctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/process"
)

// Databases are what most commands work on.
type Databases struct {
	Databases map[string]process.Secret `name:"database" env:"SHOPCTL_DATABASES" mapsep:" " placeholder:"NAME=URL" help:"A service's database, under the service's name. Repeat it, or separate several with spaces."`
}

// names returns the services in a stable order. It is an error if there are none:
// a command must not succeed because it had nothing to do.
func (d Databases) names() ([]string, error) {
	if len(d.Databases) == 0 {
		return nil, errNobody(setDatabases)
	}
	return slices.Sorted(maps.Keys(d.Databases)), nil
}

// each calls use with a session of each database and goes on after an error:
// one database that is down must not hide the others.
func (d Databases) each(ctx context.Context, use func(name string, conn *pgx.Conn) error) error {
	names, err := d.names()
	if err != nil {
		return err
	}
	var errs []error
	away := 0
	for _, name := range names {
		if err := d.with(ctx, name, use); err != nil {
			errs = append(errs, fmt.Errorf("database %s: %w", name, err))
			if notThere(err) {
				away++
			}
		}
	}
	if away == len(names) {
		errs = append(errs, errAway(setDatabases))
	}
	return errors.Join(errs...)
}

func (d Databases) with(ctx context.Context, name string, use func(name string, conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, string(d.Databases[name]))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return use(name, conn)
}
