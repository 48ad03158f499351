package postgres_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"orderpaid/platform/pgtest"
)

func TestUUIDsComeBackAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	ids := []uuid.UUID{uuid.MustParse("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"), uuid.Nil, uuid.Max}
	var one, null uuid.UUID
	var all []uuid.UUID
	var text string
	var pointer *uuid.UUID
	err := pool.QueryRow(t.Context(), `SELECT $1::uuid, $2::uuid[], $1::uuid::text, NULL::uuid, NULL::uuid`, ids[0], ids).
		Scan(&one, &all, &text, &null, &pointer)
	if err != nil {
		t.Fatal(err)
	}
	if one != ids[0] || text != ids[0].String() {
		t.Errorf("got %v, as text %q, want %v", one, text, ids[0])
	}
	if diff := cmp.Diff(ids, all); diff != "" {
		t.Errorf("array (-want +got):\n%s", diff)
	}
	if null != uuid.Nil || pointer != nil {
		t.Errorf("got %v and %v for NULL, want the nil UUID and no UUID", null, pointer)
	}
	none := pool.QueryRow(t.Context(), `SELECT $1::uuid`, (*uuid.UUID)(nil)).Scan(&pointer)
	if none != nil || pointer != nil {
		t.Errorf("got %v, %v, want no UUID", pointer, none)
	}
}
