package points

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"orderpaid/platform/messaging/messagingtest"
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
			announce(func() []byte { return refunded(t, order, user, fmt.Sprintf("re_%s_%d", order, r), back) })
		}
	}
	return h
}

// Whatever the order in which events arrive, however they are grouped and
// repeated: every balance is the sum of its entries at each step, and in the
// end it is what the orders say.
func TestBalancesAreTheSumOfTheLedgerInAnyInterleaving(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++ // users of their own: one database serves all rounds
		h := draw(t, rt, round)
		waiting := rapid.Permutation(h.events).Draw(rt, "arrival")
		for len(waiting) > 0 {
			group := waiting[:rapid.IntRange(1, len(waiting)).Draw(rt, "group")]
			waiting = waiting[len(group):]
			for i, answer := range messagingtest.Deliver(t, f.consumer, group...) {
				if !answer.Acked { // a refund that came before its payment
					waiting = append(waiting, group[i])
				}
			}
			if n := f.count(t, sqlUnequal); n != 0 {
				rt.Fatalf("%d balances are not the sum of their entries", n)
			}
		}
		for user, want := range h.sums {
			if got := f.balance(t, user).Balance; got != want {
				rt.Fatalf("balance of %s: got %d, want %d", user, got, want)
			}
		}
	})
	if n := f.count(t, `SELECT count(*) FROM message_failure`); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}
