package demo

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/postgres"
)

// services are those whose business is checked, and everyService are all that
// have a database of their own, in the order of their start.
var (
	services     = []string{"order", "points", "notify", "search"}
	everyService = append(slices.Clone(services), "console")
)

// The roles besides one per service.
const (
	ownerRole = "shop_owner" // owns the databases and runs the migrations; no service connects as it
	relayRole = "shop_relay" // sees the outbox and the relays' leases of every database, and nothing else
)

// Database returns the name of a service's database, which is also the name of
// the role that the service connects as. The prefix is there because "order"
// is a reserved word.
func Database(service string) string { return "shop_" + service }

const (
	sqlRoleExists     = `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`
	sqlDatabaseExists = `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`
)

// bootstrap makes the roles and databases that are missing. It is what an
// administrator does once for a cluster; roles have no passwords here because
// only who may open the socket gets in.
func bootstrap(ctx context.Context, superuserDSN string) error {
	conn, err := pgx.Connect(ctx, superuserDSN)
	if err != nil {
		return fmt.Errorf("bootstrap databases: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, role := range append([]string{ownerRole, relayRole}, databases()...) {
		if err := ensure(ctx, conn, sqlRoleExists, role, "CREATE ROLE "+role+" LOGIN"); err != nil {
			return fmt.Errorf("bootstrap role %s: %w", role, err)
		}
	}
	for _, db := range databases() {
		if err := ensure(ctx, conn, sqlDatabaseExists, db, "CREATE DATABASE "+db+" OWNER "+ownerRole+" TEMPLATE template0 LC_COLLATE 'C'"); err != nil {
			return fmt.Errorf("bootstrap database %s: %w", db, err)
		}
		// A service must not even connect to another one's database.
		if _, err := conn.Exec(ctx, "REVOKE CONNECT, TEMPORARY ON DATABASE "+db+" FROM PUBLIC; "+
			"GRANT CONNECT, TEMPORARY ON DATABASE "+db+" TO "+db+"; GRANT CONNECT ON DATABASE "+db+" TO "+relayRole); err != nil {
			return fmt.Errorf("bootstrap database %s: %w", db, err)
		}
	}
	return nil
}

func databases() []string {
	names := make([]string, len(everyService))
	for i, service := range everyService {
		names[i] = Database(service)
	}
	return names
}

func ensure(ctx context.Context, conn *pgx.Conn, sqlExists, name, create string) error {
	var exists bool
	if err := conn.QueryRow(ctx, sqlExists, name).Scan(&exists); err != nil || exists {
		return err
	}
	_, err := conn.Exec(ctx, create)
	return err
}

// migrate brings every database to its schema. The migrations also say what the
// roles may do, because bootstrap has made them before. dsn returns the address
// of a database for a role.
func migrate(ctx context.Context, dsn func(database, role string) string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, service := range everyService {
		g.Go(func() error { return postgres.Migrate(ctx, dsn(Database(service), ownerRole), service) })
	}
	return g.Wait()
}
