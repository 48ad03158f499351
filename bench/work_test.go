package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestABurstHasFiveVersionsOfEachOrderInTheirOrder(t *testing.T) {
	t.Parallel()
	const n = 1000
	w, err := draftWork(t.Context(), n, burst)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(w.statements), 1; got != want {
		t.Errorf("got %d statements, want %d", got, want)
	}
	text := fmt.Sprintf("%s", w.statements[0].args)
	for order := range n / perAggregate {
		versions := regexp.MustCompile(`"aggregate_id":"`+orderID(order)+`","aggregate_version":(\d)`).FindAllStringSubmatch(text, -1)
		got := ""
		for _, v := range versions {
			got += v[1]
		}
		if want := "12345"; got != want {
			t.Fatalf("order %d: got versions %s, want %s", order, got, want)
		}
	}
}

func TestFourOfFiveEventsAreOfTheHotUser(t *testing.T) {
	t.Parallel()
	w, err := draftWork(t.Context(), 1000, hotUser)
	if err != nil {
		t.Fatal(err)
	}
	hot := 0
	for _, st := range w.statements {
		hot += strings.Count(fmt.Sprintf("%s", st.args), `"user_id":"u_hot"`)
	}
	if got, want := hot, 800; got != want {
		t.Errorf("got %d events of the hot user, want %d", got, want)
	}
}

func TestARecordedPaymentBecomesThatOfAnotherOrder(t *testing.T) {
	t.Parallel()
	p := &payStatements{event: uuid.MustParse("01932f4e-5b8c-7d3a-9e1f-60718293a4b5")}
	note := "by payment " + paymentID(0)
	args := p.idsOf(255).in([]any{orderID(0), []byte(`{"order_id":"` + orderID(0) + `"}`), []uuid.UUID{p.event}, note, 7, (*time.Time)(nil)})
	if got, want := args[0], orderID(255); got != want {
		t.Errorf("order: got %v, want %v", got, want)
	}
	if got, want := string(args[1].([]byte)), `{"order_id":"`+orderID(255)+`"}`; got != want {
		t.Errorf("body: got %s, want %s", got, want)
	}
	if got, want := args[2].([]uuid.UUID)[0].String(), "01932f4e-5b8c-7d3a-9e1f-0000000000ff"; got != want {
		t.Errorf("event: got %s, want %s", got, want)
	}
	if got, want := args[3], "by payment "+paymentID(255); got != want {
		t.Errorf("note: got %v, want %v", got, want)
	}
	if args[4] != 7 || args[5] != (*time.Time)(nil) {
		t.Errorf("others changed: %v", args[4:])
	}
}

func TestPgbenchGetsLiteralsThatItCannotTakeForVariables(t *testing.T) {
	t.Parallel()
	p := &payStatements{event: uuid.MustParse("01932f4e-5b8c-7d3a-9e1f-60718293a4b5")}
	got := p.literal(statement{"UPDATE t\n   SET a = $1, b = $2, c = $3::uuid[], d = $4", []any{"it's 10:30", []byte(orderID(0)), []uuid.UUID{p.event}, 3}})
	want := `UPDATE t SET a = E'it''s\x2010\x3A30', b = convert_to((E'ord_' || lpad(to_hex(:n::bigint), 32, '0') || E''), 'UTF8'), ` +
		`c = ARRAY[(E'01932f4e-5b8c-7d3a-9e1f-' || lpad(to_hex(:n::bigint), 12, '0') || E'')]::uuid[], d = 3`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
