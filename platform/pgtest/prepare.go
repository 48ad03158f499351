package pgtest

import (
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// PrepareAll has the server parse and plan every statement in sql (name to
// text) against the migrated schema, without running it: a misspelled column
// or a parameter without a type fails here, not in the first request that
// takes this path. Named arguments (@id) are rewritten as pgx does.
func PrepareAll(t testing.TB, pool *pgxpool.Pool, sql map[string]string) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, name := range slices.Sorted(maps.Keys(sql)) {
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), sql[name], nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := conn.Conn().Prepare(t.Context(), "", text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
