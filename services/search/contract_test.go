package search

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderpaid/contracts"
	"orderpaid/platform/messaging"
)

const exampleOrder = "ord_01932f4e5b8c7d3a9e1f60718293a4b5"

func TestContractsAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	requireReads(t, OrderCreated{
		OrderID: exampleOrder, UserID: "u_2041",
		Items: []Item{
			{"OUT-PACK-38UL", map[string]string{"en": "Ultralight Hiking Backpack 38 L", "zh": "超轻量登山背包 38升", "ja": "超軽量登山バックパック 38L"}, 1, 49900},
			{"TEA-LONGJING-100", map[string]string{"en": "West Lake Longjing Green Tea 100 g", "zh": "西湖龙井绿茶 100克", "ja": "西湖龍井 緑茶 100g"}, 2, 25600},
		},
		Total: Money{75500, "CNY", 2}, CreatedAt: time.Date(2026, 10, 3, 2, 0, 0, 125_000_000, time.UTC),
	})
	requireReads(t, OrderPaid{exampleOrder, time.Date(2026, 10, 3, 2, 0, 41, 300_000_000, time.UTC)})
	requireReads(t, OrderRefunded{exampleOrder, Money{12850, "CNY", 2}, time.Date(2026, 10, 5, 9, 12, 7, 0, time.UTC)})
	requireReads(t, OrderCancelled{exampleOrder, time.Date(2026, 10, 3, 2, 5, 19, 500_000_000, time.UTC)})
}

// orderKinds are the kinds that contracts/ has of orders, sorted. The channel
// says whose a kind is; a test of contracts/ sees that each kind has one.
func orderKinds(t *testing.T) (kinds []string) {
	t.Helper()
	raw, err := os.ReadFile("../../contracts/asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^    address: shop\.events\.order\.(\w+\.v\d+)\.`).FindAllSubmatch(raw, -1) {
		kinds = append(kinds, string(m[1]))
	}
	slices.Sort(kinds)
	return kinds
}

// requireReads decodes the golden example of T's kind and compares it with want.
func requireReads[T messaging.Payload](t *testing.T, want T) {
	t.Helper()
	raw, err := contracts.Example(want.Kind().String())
	if err != nil {
		t.Fatal(err)
	}
	var got T
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", want.Kind(), diff)
	}
}
