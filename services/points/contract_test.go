package points

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"orderpaid/contracts"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

func TestConsumedContractsAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	requireDecodes(t, OrderPaid{OrderID: "ord_01932f4e5b8c7d3a9e1f60718293a4b5", UserID: "u_2041", PointsDelta: pointer(755)})
	requireDecodes(t, OrderRefunded{
		OrderID: "ord_01932f4e5b8c7d3a9e1f60718293a4b5", UserID: "u_2041", RefundID: "re_7R9B0TZ4", PointsDelta: pointer(-128),
	})
}

func TestStatedContractsAreWrittenAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 10, 3, 2, 0, 41, 702118000, time.UTC)
	awarded := PointsAwarded{"pte_01932f4e60f27a10b3c2d4e5f6071829", "ord_01932f4e5b8c7d3a9e1f60718293a4b5", "u_2041", 755, at}
	requireDecodes(t, awarded)
	requireValid(t, awarded)

	at = time.Date(2026, 10, 5, 9, 12, 7, 512904000, time.UTC)
	reversed := PointsReversed{"pte_01932f59c8d47b6e8f90a1b2c3d4e5f6", "ord_01932f4e5b8c7d3a9e1f60718293a4b5", "u_2041", "re_7R9B0TZ4", -128, at}
	requireDecodes(t, reversed)
	requireValid(t, reversed)
}

func TestWhatIsStagedFollowsItsContract(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, paid(t, order, "u1", 7), refunded(t, order, "u1", "re_1", -7))
	requireValid(t, messagingtest.RequireStaged[PointsAwarded](t, f.pool).Data)
	requireValid(t, messagingtest.RequireStaged[PointsReversed](t, f.pool).Data)
}

// requireDecodes decodes the golden example of T's kind and compares it with want.
func requireDecodes[T messaging.Payload](t *testing.T, want T) {
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
	validate(t, want.Kind(), raw)
}

func requireValid(t *testing.T, payload messaging.Payload) {
	t.Helper()
	raw, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	validate(t, payload.Kind(), raw)
}

func validate(t *testing.T, kind messaging.Kind, raw []byte) {
	t.Helper()
	source, err := contracts.Schema(kind.String())
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(source))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v", kind, err)
	}
}

func pointer(n int64) *int64 { return &n }
