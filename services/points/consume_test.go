package points

import (
	"fmt"
	"math"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

func TestOrderPaidTwiceAwardsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	event := paid(t, order, "u1", 19)
	f.deliver(t, event, event) // in one group
	f.deliver(t, event)        // and again, after an acknowledgement was lost

	f.requireBalance(t, "u1", 19)
	got := messagingtest.RequireStaged[PointsAwarded](t, f.pool)
	if got.Data.OrderID != order || got.Data.UserID != "u1" || got.Data.Points != 19 || got.AggregateID != got.Data.EntryID || got.AggregateVersion != 1 {
		t.Errorf("stated: %+v", got)
	}
	if got.CausationID == "" || got.CorrelationID != order {
		t.Errorf("caused by %q, correlated with %q, want the order's event and %q", got.CausationID, got.CorrelationID, order)
	}
}

// C52: somebody renames the durable. The new one has an inbox of its own, which
// is empty, and the stream comes from the beginning: the ledger knows its orders.
func TestTheStreamAgainUnderAnotherDurableAwardsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	event := paid(t, newOrder(), "u1", 19)
	f.deliver(t, event)
	renamed := messaging.NewConsumer(awarder+"-v2", f.pool, nil, messaging.ConsumerConfig{})
	f.service.register(renamed)
	if answers := messagingtest.Deliver(t, renamed, event); !messagingtest.AllAcked(answers) {
		t.Errorf("the event was not acknowledged: %+v", answers)
	}
	f.requireBalance(t, "u1", 19)
	messagingtest.RequireStaged[PointsAwarded](t, f.pool)
}

// C92: an order is awarded once, whatever it comes as.
func TestOrderPaidUnderAnotherEventIDChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, paid(t, order, "u1", 19), paid(t, order, "u1", 19)) // two ids in one group
	f.deliver(t, paid(t, order, "u1", 500))                          // and a third, with other points

	f.requireBalance(t, "u1", 19)
	messagingtest.RequireStaged[PointsAwarded](t, f.pool)
	if got, want := f.count(t, `SELECT count(*) FROM message_inbox WHERE result = 'already_booked'`), int64(2); got != want {
		t.Errorf("inbox rows that say already_booked: got %d, want %d", got, want)
	}
}

func TestAZeroAmountOrderHasAnEntryOfZero(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deliver(t, paid(t, newOrder(), "u1", 0))
	f.requireBalance(t, "u1", 0)
	if got := messagingtest.RequireStaged[PointsAwarded](t, f.pool); got.Data.Points != 0 {
		t.Errorf("stated: %+v", got.Data)
	}
}

func TestABatchOfAThousandMostlyOfOneUserIsExact(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var events [][]byte
	want := map[string]int64{}
	for i := range 1000 {
		user, points := "hot", int64(i)
		if i%5 == 0 {
			user = fmt.Sprintf("u%d", i%50)
		}
		want[user] += points
		events = append(events, paid(t, newOrder(), user, points))
	}
	f.deliver(t, events...)
	for user, points := range want {
		f.requireBalance(t, user, points)
	}
	if got := len(messagingtest.Staged[PointsAwarded](t, f.pool)); got != 1000 {
		t.Errorf("stated: got %d, want 1000", got)
	}
	f.requireSums(t)
}

// C35: as many points go back as came, once for each refund.
func TestARefundTakesPointsBackOnceEach(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	first := refunded(t, order, "u1", "re_1", -40)
	f.deliver(t, paid(t, order, "u1", 100), first, refundedAs(t, 4, order, "u1", "re_2", -60)) // paid and refunded in one group
	f.deliver(t, first, refundedAs(t, 4, order, "u1", "re_2", -60))                            // again: same id, and another id

	f.requireBalance(t, "u1", 0)
	if f.balance(t, "u1").Overdrawn {
		t.Error("nothing is owed, yet it says overdrawn")
	}
	stated := messagingtest.Staged[PointsReversed](t, f.pool)
	if len(stated) != 2 || stated[0].Data.Points != -40 || stated[0].Data.RefundID != "re_1" || stated[1].Data.Points != -60 {
		t.Errorf("stated: %+v", stated)
	}
	f.requireSums(t)
}

// C56: what takes back comes before what it takes back.
func TestARefundBeforeItsPaymentWaitsForIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, refunded(t, order, "u1", "re_1", -100), refundedAs(t, 4, order, "u1", "re_2", -20))
	f.retry(t) // too early
	if got := f.waiting(t); got != 2 {
		t.Errorf("waiting: got %d, want both refunds", got)
	}
	if got := f.count(t, `SELECT count(*) FROM points_entry`); got != 0 {
		t.Errorf("booked before the payment: %d entries", got)
	}

	f.deliver(t, paid(t, order, "u1", 120))
	f.retry(t)
	f.requireBalance(t, "u1", 0)
	if got := f.count(t, `SELECT count(*) FROM points_entry WHERE order_id = $1`, order); got != 3 {
		t.Errorf("entries: got %d, want 3", got)
	}
	if got := f.waiting(t); got != 0 {
		t.Errorf("waiting: got %d, want none", got)
	}
}

func TestAWaitingRefundDoesNotHoldUpOtherOrders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deliver(t, refunded(t, newOrder(), "u1", "re_1", -10), paid(t, newOrder(), "u2", 5),
		refunded(t, newOrder(), "u3", "re_2", -1), paid(t, newOrder(), "u4", 7))
	f.requireBalance(t, "u2", 5)
	f.requireBalance(t, "u4", 7)
	if got := f.waiting(t); got != 2 {
		t.Errorf("waiting: got %d, want 2", got)
	}
}

// C35: points that were spent and then taken back are owed, not forgotten.
func TestABalanceBelowZeroIsADebtAndSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	// An award that was larger than it looks now: the refund decides what goes.
	f.deliver(t, paid(t, order, "u1", 10), refunded(t, order, "u1", "re_1", -25))
	if got := f.balance(t, "u1"); got.Balance != -15 || !got.Overdrawn {
		t.Errorf("got %+v, want -15 and overdrawn", got)
	}
	f.deliver(t, paid(t, newOrder(), "u1", 20))
	if got := f.balance(t, "u1"); got.Balance != 5 || got.Overdrawn {
		t.Errorf("got %+v, want 5 and not overdrawn", got)
	}
}

// C35: a balance never wraps.
func TestPointsBeyond64BitsAreADeadLetterAndChangeNothing(t *testing.T) {
	t.Parallel()
	for name, points := range map[string][2]int64{
		"one more than the largest": {math.MaxInt64, 1},
		"twice the largest":         {math.MaxInt64, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.deliver(t, paid(t, newOrder(), "u1", points[0]))
			// The other user's event shares the group and must not suffer.
			f.deliver(t, paid(t, newOrder(), "u1", points[1]), paid(t, newOrder(), "u2", 3))
			f.requireBalance(t, "u1", points[0])
			f.requireBalance(t, "u2", 3)
			f.requireDeadLetter(t, "balance_overflow")
			f.requireSums(t)
		})
	}
	t.Run("in one group", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.deliver(t, paid(t, newOrder(), "u1", math.MaxInt64), paid(t, newOrder(), "u1", 1), paid(t, newOrder(), "u1", 0))
		f.requireBalance(t, "u1", math.MaxInt64)
		f.requireDeadLetter(t, "balance_overflow")
	})
	t.Run("below the smallest", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		order := newOrder()
		f.deliver(t, paid(t, order, "u1", 0), refunded(t, order, "u1", "re_1", math.MinInt64))
		f.deliver(t, refundedAs(t, 4, order, "u1", "re_2", -1))
		f.requireBalance(t, "u1", math.MinInt64)
		f.requireDeadLetter(t, "balance_overflow")
	})
}

func TestEventsThatContradictTheirContractAreDeadLetters(t *testing.T) {
	t.Parallel()
	order := newOrder()
	for name, c := range map[string]struct {
		event []byte
		code  string
	}{
		"a negative award":        {paid(t, order, "u1", -1), "bad_points"},
		"a positive refund":       {refunded(t, order, "u1", "re_1", 1), "bad_points"},
		"a refund without an id":  {refunded(t, order, "u1", "", -1), "bad_refund_id"},
		"an award without points": {messagingtest.Envelope(t, order, 2, OrderPaid{OrderID: order, UserID: "u1"}), "bad_points"},
		"no user":                 {paid(t, order, "", 1), "bad_user_id"},
		"a user that is a path":   {paid(t, order, "../u1", 1), "bad_user_id"},
		"another order's event":   {messagingtest.Envelope(t, newOrder(), 2, OrderPaid{OrderID: order, UserID: "u1", PointsDelta: new(int64)}), "bad_order_id"},
		"half a point":            {withData(t, order, `{"order_id":"`+order+`","user_id":"u1","points_delta":1.5}`), "bad_data"},
		"points beyond 64 bits":   {withData(t, order, `{"order_id":"`+order+`","user_id":"u1","points_delta":9223372036854775808}`), "bad_data"},
		"points in words":         {withData(t, order, `{"order_id":"`+order+`","user_id":"u1","points_delta":"1"}`), "bad_data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.deliver(t, c.event, paid(t, newOrder(), "u2", 3))
			f.requireDeadLetter(t, c.code)
			f.requireBalance(t, "u1", 0)
			f.requireBalance(t, "u2", 3)
		})
	}
}

func TestARefundForAnotherUserIsADeadLetter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, paid(t, order, "u1", 10))
	f.deliver(t, refunded(t, order, "u2", "re_1", -10))
	f.requireDeadLetter(t, "wrong_user")
	f.requireBalance(t, "u1", 10)
	f.requireBalance(t, "u2", 0)
}

// requireDeadLetter fails the test unless there is exactly one, with this code.
func (f fixture) requireDeadLetter(t *testing.T, code string) {
	t.Helper()
	if all, these := f.count(t, `SELECT count(*) FROM message_failure WHERE state = 'open'`),
		f.count(t, `SELECT count(*) FROM message_failure WHERE error_code = $1 AND error_class = 'permanent'`, code); all != 1 || these != 1 {
		t.Errorf("dead letters: got %d, %d of them with code %s, want 1", all, these, code)
	}
}
