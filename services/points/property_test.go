package points

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A history is what the order service has published about some orders, and
// what it adds up to: each order and each refund once.
type history struct {
	events [][]byte
	sums   map[string]int64 // by user
}

// draw makes a history of a few users. Each payment and refund is announced
// one to three times, some copies under an event id of their own.
func draw(t *testing.T, rt *rapid.T, round int) history {
	h := history{sums: map[string]int64{}}
	announce := func(event func() []byte) {
		first := event()
		h.events = append(h.events, first)
		for range rapid.IntRange(0, 2).Draw(rt, "copies") {
			if rapid.Bool().Draw(rt, "another event id") {
				first = event()
			}
			h.events = append(h.events, first)
		}
	}
	for i := range rapid.IntRange(1, 6).Draw(rt, "orders") {
		order := newOrder()
		user := fmt.Sprintf("u%d_%d", round, i%3)
		points := rapid.Int64Range(0, 1000).Draw(rt, "points")
		h.sums[user] += points
		announce(func() []byte { return paid(t, order, user, points) })
		for r := range rapid.IntRange(0, 2).Draw(rt, "refunds") {
			back := -rapid.Int64Range(0, 600).Draw(rt, "points back") // together possibly more than was given: a debt
			h.sums[user] += back
			announce(func() []byte { return refundedAs(t, int64(3+r), order, user, fmt.Sprintf("re_%s_%d", order, r), back) })
		}
	}
	return h
}

// Whatever the order in which events arrive, however they are grouped and
// repeated: every balance is the sum of its entries at each step, and in the
// end it is what the orders say.
// C92: no total drifts from its ledger.
func TestBalancesAreTheSumOfTheLedgerInAnyInterleaving(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++ // users of their own: one database serves all rounds
		h := draw(t, rt, round)
		arrival := rapid.Permutation(h.events).Draw(rt, "arrival")
		for len(arrival) > 0 {
			group := arrival[:rapid.IntRange(1, len(arrival)).Draw(rt, "group")]
			arrival = arrival[len(group):]
			f.deliver(t, group...)
			if rapid.Bool().Draw(rt, "retry in between") {
				f.retry(t)
			}
			if n := f.count(t, sqlUnequal); n != 0 {
				rt.Fatalf("%d balances are not the sum of their entries", n)
			}
		}
		f.retry(t)
		if n := f.waiting(t); n != 0 {
			rt.Fatalf("%d events still wait, though all have arrived", n)
		}
		for user, want := range h.sums {
			if got := f.balance(t, user).Balance; got != want {
				rt.Fatalf("balance of %s: got %d, want %d", user, got, want)
			}
		}
	})
	if n := f.count(t, `SELECT count(*) FROM message_failure WHERE state = 'open'`); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}
