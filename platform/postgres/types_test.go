package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

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

func TestArraysComeBackAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	long := strings.Repeat("語", 5000)
	for name, tt := range map[string]struct {
		ids      []uuid.UUID
		texts    []string
		payloads [][]byte
		times    []*time.Time
		bounds   string // of the texts, as PostgreSQL sees them
	}{
		"none":    {[]uuid.UUID{}, []string{}, [][]byte{}, []*time.Time{}, ""},
		"NULL":    {nil, nil, nil, nil, ""},
		"one":     {[]uuid.UUID{uuid.Max}, []string{""}, [][]byte{{}}, []*time.Time{nil}, "[1:1]"},
		"several": {[]uuid.UUID{uuid.Nil, uuid.Max}, []string{"a", "NULL", `{"\`, long}, [][]byte{{0, 255}, nil, []byte("x")}, []*time.Time{nil, {}}, "[1:4]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ids []uuid.UUID
			var texts []string
			var payloads [][]byte
			var times []*time.Time
			var bounds string
			err := pool.QueryRow(t.Context(), `SELECT $1::uuid[], $2::text[], $3::bytea[], $4::timestamptz[], coalesce(array_dims($2::text[]), '')`,
				tt.ids, tt.texts, tt.payloads, pgtype.FlatArray[*time.Time](tt.times)).Scan(&ids, &texts, &payloads, &times, &bounds)
			if err != nil {
				t.Fatal(err)
			}
			for _, diff := range []string{cmp.Diff(tt.ids, ids), cmp.Diff(tt.texts, texts), cmp.Diff(tt.payloads, payloads), cmp.Diff(tt.times, times), cmp.Diff(tt.bounds, bounds)} {
				if diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// Ids travel as texts, and texts as ids: their bytes are not the same.
func TestAnArrayOfOneTypeCanBeGivenForAnother(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	id, at := uuid.MustParse("0190a3f0-c1d2-7e3f-8a4b-5c6d7e8f9012"), time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		sql   string
		given any
	}{
		"texts for ids":   {`SELECT ($1::uuid[])[1]::text`, []string{id.String()}},
		"ids for texts":   {`SELECT ($1::text[])[1]`, []uuid.UUID{id}},
		"bytes for texts": {`SELECT ($1::text[])[1]`, [][]byte{[]byte(id.String())}},
	} {
		var got string
		if err := pool.QueryRow(t.Context(), tt.sql, tt.given).Scan(&got); err != nil || got != id.String() {
			t.Errorf("%s: got %q, %v, want %s", name, got, err, id)
		}
	}
	var got time.Time
	if err := pool.QueryRow(t.Context(), `SELECT ($1::timestamptz[])[1]`, []string{at.Format(time.RFC3339)}).Scan(&got); err != nil || !got.Equal(at) {
		t.Errorf("texts for times: got %v, %v, want %v", got, err, at)
	}
}
