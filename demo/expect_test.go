package demo

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// placed is the answer to an order of 19.90 CNY.
func placed(order int) Entry {
	return Entry{Order: order, Op: OpCreate, Key: "order", Outcome: Accepted, OrderID: "ord_1", UserID: "u-0001", Amount: 1990, Currency: "CNY"}
}

func answered(op, key, outcome string, amount int64, code string) Entry {
	return Entry{Order: 1, Op: op, Key: key, Outcome: outcome, Amount: amount, Code: code, PaymentID: "pay", RefundID: key}
}

func TestTheJournalSaysWhatTheShopOwes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		entries []Entry
		state   string
		version int64
		points  int64 // earned less taken back
		misfits int
	}{
		{"only placed", nil, "PENDING_PAYMENT", 1, 0, 0},
		{"cancelled", []Entry{answered(OpCancel, "c", Accepted, 0, "")}, "CANCELLED", 2, 0, 0},
		{"paid, announced twice", []Entry{answered(OpPay, "a", Accepted, 1990, ""), answered(OpPay, "b", Accepted, 1990, "")}, "PAID", 2, 19, 0},
		{"paid, and refunded before", []Entry{answered(OpRefund, "r", Accepted, 1990, ""), answered(OpPay, "a", Accepted, 1990, "")}, "PAID", 3, 0, 0},
		{"refunded in two parts", []Entry{answered(OpPay, "a", Accepted, 1990, ""), answered(OpRefund, "r", Accepted, 500, ""),
			answered(OpRefund, "s", Accepted, 500, "")}, "PAID", 4, 19 - 9, 0},
		{"the payment lost the race", []Entry{answered(OpCancel, "c", Accepted, 0, ""), answered(OpPay, "a", Refused, 1990, "order_cancelled")},
			"CANCELLED", 2, 0, 1},
		{"the cancel lost the race", []Entry{answered(OpPay, "a", Accepted, 1990, ""), answered(OpCancel, "c", Refused, 0, "order_paid")},
			"PAID", 2, 19, 0},
		{"another amount first", []Entry{answered(OpPay, "w", Refused, 1991, "amount_mismatch"), answered(OpPay, "a", Accepted, 1990, "")},
			"PAID", 2, 19, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			x := expect(append([]Entry{placed(1)}, tc.entries...))
			if len(x.orders) != 1 || len(x.surprises) > 0 || x.open > 0 {
				t.Fatalf("%d orders, %d open, surprises %v", len(x.orders), x.open, x.surprises)
			}
			o := x.orders[0]
			got := []any{o.state(), o.version(), o.earned() - o.takenBack(), len(o.misfits)}
			if diff := cmp.Diff([]any{tc.state, tc.version, tc.points, tc.misfits}, got); diff != "" {
				t.Errorf("state, version, points, misfits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswersThatContradictEachOtherAreSurprises(t *testing.T) {
	t.Parallel()
	other := placed(1)
	other.OrderID = "ord_2"
	for name, entries := range map[string][]Entry{
		"one key, two orders":      {placed(1), other},
		"both paid and cancelled":  {placed(1), answered(OpPay, "a", Accepted, 1990, ""), answered(OpCancel, "c", Accepted, 0, "")},
		"another amount accepted":  {placed(1), answered(OpPay, "a", Accepted, 1991, "")},
		"a good payment refused":   {placed(1), answered(OpPay, "a", Refused, 1990, "signature_invalid")},
		"a good order refused":     {{Order: 1, Op: OpCreate, Key: "order", Outcome: Refused, Code: "unknown_sku"}},
		"a cancel refused for fun": {placed(1), answered(OpCancel, "c", Refused, 0, "internal")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if x := expect(entries); len(x.surprises) != 1 {
				t.Errorf("surprises %v, want one", x.surprises)
			}
		})
	}
}

func TestALostAnswerStaysOpenUntilTheRepetitionIsAnswered(t *testing.T) {
	t.Parallel()
	lost := answered(OpPay, "a", Unknown, 1990, "")
	if x := expect([]Entry{placed(1), lost, lost}); x.open != 1 || x.lost != 2 {
		t.Errorf("%d open and %d lost, want 1 and 2", x.open, x.lost)
	}
	if x := expect([]Entry{placed(1), lost, answered(OpPay, "a", Accepted, 1990, "")}); x.open != 0 {
		t.Errorf("%d open after an answer, want none", x.open)
	}
	if x := expect([]Entry{placed(1), answered(OpPay, "a", Accepted, 1990, ""), lost}); x.open != 0 {
		t.Errorf("%d open although it had been answered before, want none", x.open)
	}
}
