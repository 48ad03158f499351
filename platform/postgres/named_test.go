package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func TestNamedArgumentsArriveWhereTheyAreNamed(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	const sql = `SELECT @first::text || @second::text || @first::text || '@second' -- @third`
	for _, values := range [][2]string{{"a", "b"}, {"c", "d"}, {"", "@first"}} { // the later ones by what is remembered
		err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			args := pgx.StrictNamedArgs{"first": values[0], "second": values[1]}
			want := values[0] + values[1] + values[0] + "@second"
			var row, inside string
			var batched string
			if err := tx.QueryRow(t.Context(), sql, args).Scan(&row); err != nil {
				return err
			}
			batch := &pgx.Batch{}
			batch.Queue(sql, args).QueryRow(func(row pgx.Row) error { return row.Scan(&batched) })
			if err := tx.SendBatch(t.Context(), batch).Close(); err != nil {
				return err
			}
			savepoint, err := tx.Begin(t.Context())
			if err != nil {
				return err
			}
			if err := savepoint.QueryRow(t.Context(), sql, args).Scan(&inside); err != nil {
				return err
			}
			if row != want || batched != want || inside != want {
				t.Errorf("got %q, in a batch %q, in a savepoint %q, want %q", row, batched, inside, want)
			}
			return savepoint.Commit(t.Context())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever is remembered of a statement, a name too many or too few is an
// error, and never a NULL or somebody else's value.
func TestANameTooManyOrTooFewIsAnErrorAlsoTheSecondTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	const sql = `SELECT @one::text || @two::text /* of two names */`
	for range 2 {
		for name, tt := range map[string]struct {
			args pgx.StrictNamedArgs
			want string // in the error; "" for none
		}{
			"right":    {pgx.StrictNamedArgs{"one": "1", "two": "2"}, ""},
			"too few":  {pgx.StrictNamedArgs{"one": "1"}, "two"},
			"too many": {pgx.StrictNamedArgs{"one": "1", "two": "2", "three": "3"}, "three"},
			"another":  {pgx.StrictNamedArgs{"one": "1", "zwei": "2"}, "two"},
		} {
			var got string
			err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error { return tx.QueryRow(t.Context(), sql, tt.args).Scan(&got) })
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %q, %v, want an error about %q", name, got, err, tt.want)
			}
		}
	}
}
