package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestTwoTestsDoNotSeeEachOthersRows(t *testing.T) {
	t.Parallel()
	first, second := New(t, "messaging"), New(t, "messaging")
	_, err := first.Exec(t.Context(), `INSERT INTO message_progress (consumer, aggregate_type, aggregate_id, last_version) VALUES ('c', 'order', 'ord_1', 1)`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := count(t, first), 1; got != want {
		t.Errorf("first database: got %d rows, want %d", got, want)
	}
	if got, want := count(t, second), 0; got != want {
		t.Errorf("second database: got %d rows, want %d", got, want)
	}
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM message_progress`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
