package points

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func TestEveryStatementFitsTheSchema(t *testing.T) {
	t.Parallel()
	pgtest.PrepareAll(t, pgtest.New(t, "points"), map[string]string{
		"sqlBook": sqlBook, "sqlAwardedTo": sqlAwardedTo, "sqlBalance": sqlBalance, "sqlEntries": sqlEntries,
	})
}

func newEntry(order, user string, points int64) Entry {
	return Entry{ID: "pte_" + uuid.NewString(), OrderID: order, UserID: user, Kind: Award, Points: points, EventID: uuid.New()}
}

// Only one replica of the consumer is active, but for a moment two can believe
// to be it. The ledger does not depend on that.
func TestTwentyTransactionsThatBookOneOrderBookItOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	added := make([]int, 20)
	var g errgroup.Group
	for i := range added {
		g.Go(func() error {
			return postgres.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
				booked, err := book(t.Context(), tx, []Entry{newEntry(order, "u1", 19)})
				added[i] = len(booked)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range added {
		sum += n
	}
	if sum != 1 {
		t.Errorf("booked %d times, want 1", sum)
	}
	f.requireBalance(t, "u1", 19)
}

// Groups of very different sizes, because the order in which a small one and
// a large one come out of a hash table differs: only ORDER BY makes it one.
func TestTransactionsThatBookForTheSameUsersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const transactions, users = 30, 400
	want := map[string]int64{}
	var g errgroup.Group
	g.SetLimit(8)
	for i := range transactions {
		group := rand.Perm(users)[:1+(i*i*31)%users]
		entries := make([]Entry, len(group))
		for n, user := range group {
			entries[n] = newEntry(newOrder(), fmt.Sprintf("u%d", user), 1)
			want[entries[n].UserID]++
		}
		g.Go(func() error {
			return postgres.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
				_, err := book(t.Context(), tx, entries)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("SQLSTATE %s: %v", postgres.Code(err), err)
	}
	for _, user := range []string{"u1", "u200", "u399"} {
		f.requireBalance(t, user, want[user])
	}
	f.requireSums(t)
}

func TestTheLedgerRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const insert = `INSERT INTO points_entry (entry_id, order_id, user_id, kind, refund_id, points, event_id)
		VALUES ($1, $2, $3, $4, $5, $6, gen_random_uuid())`
	for i, c := range []struct {
		name, order, user, kind, refund string
		points                          int64
		state                           string
	}{
		{"a negative award", "o", "u", "award", "", -1, "23514"},
		{"an award for a refund", "o", "u", "award", "re", 1, "23514"},
		{"a positive reversal", "o", "u", "reversal", "re", 1, "23514"},
		{"a reversal of nothing", "o", "u", "reversal", "", -1, "23514"},
		{"another kind", "o", "u", "gift", "", 1, "23514"},
		{"no order", "", "u", "award", "", 1, "23514"},
		{"no user", "o", "", "award", "", 1, "23514"},
		{"a first award", "o", "u", "award", "", 1, ""},
		{"a second award", "o", "u", "award", "", 1, "23505"},
		{"a first reversal", "o", "u", "reversal", "re", -1, ""},
		{"the same reversal", "o", "u", "reversal", "re", -1, "23505"},
		{"another reversal", "o", "u", "reversal", "re2", 0, ""},
	} {
		_, err := f.pool.Exec(t.Context(), insert, fmt.Sprintf("pte_%d", i), c.order, c.user, c.kind, c.refund, c.points)
		if got := postgres.Code(err); got != c.state {
			t.Errorf("%s: got SQLSTATE %q, want %q", c.name, got, c.state)
		}
	}
}

func TestEntriesAreReadNewestFirstAPageAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var want []string
	for i := range 5 {
		order := newOrder()
		f.deliver(t, paid(t, order, "u1", int64(i)), paid(t, newOrder(), "u2", 1))
		want = append([]string{order}, want...)
	}
	var got []string
	var sizes []int
	for cursor, more := "", true; more; more = cursor != "" {
		page := get[entriesView](t, f, "/v1/users/u1/points/entries?limit=2&cursor="+cursor)
		for _, e := range page.Entries {
			got = append(got, e.OrderID)
		}
		sizes = append(sizes, len(page.Entries))
		cursor = page.NextCursor
		if len(sizes) == 1 { // what is booked meanwhile is newer than the page and shifts nothing
			f.deliver(t, paid(t, newOrder(), "u1", 9))
		}
	}
	if !slices.Equal(got, want) || !slices.Equal(sizes, []int{2, 2, 1}) {
		t.Errorf("got pages of %v with %v, want %v", sizes, got, want)
	}
}

func TestAnEntrySaysWhatItWasBookedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, paid(t, order, "u1", 10), refunded(t, order, "u1", "re_1", -4))
	page := get[entriesView](t, f, "/v1/users/u1/points/entries")
	if len(page.Entries) != 2 || page.NextCursor != "" {
		t.Fatalf("got %+v", page)
	}
	for _, e := range page.Entries {
		if age := time.Since(e.BookedAt); e.OrderID != order || age < 0 || age > time.Minute {
			t.Errorf("got %+v", e)
		}
		if wantRefund := map[EntryKind]string{Award: "", Reversal: "re_1"}[e.Kind]; e.RefundID != wantRefund {
			t.Errorf("%s: got refund id %q, want %q", e.Kind, e.RefundID, wantRefund)
		}
	}
}
