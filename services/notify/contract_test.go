package notify

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"orderpaid/contracts"
	"orderpaid/demo/sim"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

func TestConsumedContractsAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	amount, exponent := int64(75500), 2
	requireDecodes(t, OrderPaid{
		OrderID: "ord_01932f4e5b8c7d3a9e1f60718293a4b5", UserID: "u_2041",
		Total: eventMoney{&amount, "CNY", &exponent}, PaidAt: time.Date(2026, 10, 3, 2, 0, 41, 300_000_000, time.UTC),
	})
}

func TestStatedContractsAreWrittenAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	const id, order = "ntf_01932f4e617c7f0485a6b7c8d9e0f102", "ord_01932f4e5b8c7d3a9e1f60718293a4b5"
	at := time.Date(2026, 10, 3, 2, 0, 41, 918_455_000, time.UTC)
	sent := NotificationSent{id, order, "u_2041", Channel, OrderPaidTemplate, "<" + id + "@shop.example>", at}
	requireDecodes(t, sent)
	requireValid(t, sent)
	failed := NotificationFailed{id, order, "u_2041", Channel, OrderPaidTemplate, codeRejected, at}
	requireDecodes(t, failed)
	requireValid(t, failed)
}

func TestWhatIsStagedFollowsItsContract(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Code: 554, To: "u2@"})
	f.startSending(t, quick(1, 0))
	f.deliver(t, paid(t, newOrder(), "u1"), paid(t, newOrder(), "u2"))
	f.requireState(t, "u1", Sent)
	f.requireState(t, "u2", Failed)
	requireValid(t, messagingtest.RequireStaged[NotificationSent](t, f.pool).Data)
	requireValid(t, messagingtest.RequireStaged[NotificationFailed](t, f.pool).Data)
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
