package order

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"orderpaid/contracts"
	"orderpaid/platform/messaging"
)

// What this service states is the contract, field by field: the example comes
// out of the struct as it went in.
func TestStatedEventsAreTheirContracts(t *testing.T) {
	t.Parallel()
	roundTrip[OrderCreated](t)
	roundTrip[OrderPaid](t)
	roundTrip[OrderRefunded](t)
	roundTrip[OrderCancelled](t)
}

func roundTrip[T messaging.Payload](t *testing.T) {
	t.Helper()
	var event T
	example, err := contracts.Example(event.Kind().String())
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(example))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&event); err != nil {
		t.Fatalf("%s: %v", event.Kind(), err)
	}
	encoded, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(encoded, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(example, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("%s: got-, want+\n%s", event.Kind(), diff)
	}
}

// What this service reads of others is in their contracts.
func TestReadEventsHaveTheFieldsThatAreUsed(t *testing.T) {
	t.Parallel()
	if ev := exampleOf[PointsAwarded](t); ev.OrderID == "" || ev.AwardedAt.IsZero() {
		t.Errorf("got %+v", ev)
	}
	if ev := exampleOf[NotificationSent](t); ev.OrderID == "" || ev.Template != templatePaid || ev.SentAt.IsZero() {
		t.Errorf("got %+v", ev)
	}
	if ev := exampleOf[NotificationFailed](t); ev.OrderID == "" || ev.Template != templatePaid || ev.Code == "" || ev.FailedAt.IsZero() {
		t.Errorf("got %+v", ev)
	}
}

func exampleOf[T messaging.Payload](t *testing.T) T {
	t.Helper()
	var event T
	example, err := contracts.Example(event.Kind().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(example, &event); err != nil {
		t.Fatalf("%s: %v", event.Kind(), err)
	}
	return event
}

// What is really staged, from real orders, is valid under its schema.
func TestEverythingStagedIsValid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.pay(t, o, "pay_1")
	s.refund(t, o, "pay_1", "re_1", 1)
	s.refund(t, o, "pay_1", "re_2", 49_899)
	s.cancel(t, s.placed(t).OrderID)

	envelope := compile(t, "envelope")
	rows, err := s.pool.Query(t.Context(), `SELECT kind, payload FROM message_outbox ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	staged := 0
	for rows.Next() {
		var kind string
		var payload []byte
		if err := rows.Scan(&kind, &payload); err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
		if err != nil {
			t.Fatal(err)
		}
		if err := envelope.Validate(document); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := compile(t, kind).Validate(document.(map[string]any)["data"]); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		staged++
	}
	if err := rows.Err(); err != nil || staged != 6 {
		t.Errorf("got %d events, %v; want 6", staged, err)
	}
}

func compile(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	raw, err := contracts.Schema(kind)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(kind, document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(kind)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return schema
}
