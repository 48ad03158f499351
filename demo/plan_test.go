package demo

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testCatalogue = []product{
	{SKU: "A", Prices: []money{{100, "CNY", 2}, {100, "USD", 2}, {100, "JPY", 0}}},
	{SKU: "B", Prices: []money{{200, "CNY", 2}, {300, "USD", 2}, {400, "JPY", 0}}},
	{SKU: "C", Prices: []money{{200, "JPY", 0}}},
}

func testPlan(number int) plan {
	return newPlan(LoadConfig{Run: "run", Users: 10, Seed: 7}, number, testCatalogue)
}

func TestAPlanFollowsFromSeedAndNumber(t *testing.T) {
	t.Parallel()
	describe := func(number int) []any {
		p := testPlan(number)
		list := p.callbacks("ord_1", money{1000, "CNY", 2})
		ids := []any{p.user, p.currency, p.items, p.fate}
		for _, cb := range list {
			ids = append(ids, cb.webhookID+cb.refundID)
		}
		return ids
	}
	for number := range 50 {
		if diff := cmp.Diff(describe(number), describe(number)); diff != "" {
			t.Errorf("order %d is planned in two ways:\n%s", number, diff)
		}
	}
}

func TestPlansBringEveryKindOfTrouble(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	fates := map[fate]bool{}
	for number := range 500 {
		p := testPlan(number)
		fates[p.fate] = true
		if len(p.items) == 0 {
			t.Fatalf("order %d is empty", number)
		}
		total := money{1000, p.currency, 2}
		var refunded int64
		ids, refunds, paid := map[string]int{}, map[string]bool{}, false
		for _, cb := range p.callbacks("ord_1", total) {
			if ids[cb.webhookID]++; ids[cb.webhookID] > 1 {
				seen["a copy under the same id"] = true
			}
			switch {
			case cb.op == OpPay && paid:
				seen["a payment announced twice"] = true
			case cb.op == OpPay:
				paid = true
			case !paid:
				seen["a refund before its payment"] = true
			}
			if cb.op == OpRefund && !refunds[cb.refundID] {
				refunds[cb.refundID] = true
				refunded += cb.amount.Amount
			}
		}
		if refunded > total.Amount {
			t.Errorf("order %d refunds %d of %d", number, refunded, total.Amount)
		}
		if len(refunds) > 1 {
			seen["a refund in parts"] = true
		}
	}
	for _, trouble := range []string{"a copy under the same id", "a payment announced twice", "a refund before its payment", "a refund in parts"} {
		if !seen[trouble] {
			t.Errorf("500 orders bring no %s", trouble)
		}
	}
	if len(fates) != int(fateWrongAmount)+1 {
		t.Errorf("500 orders have %d fates, want %d", len(fates), fateWrongAmount+1)
	}
}
