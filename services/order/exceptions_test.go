package order

import (
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// operators returns clients of the service's ops API: one who acts, and one who
// looks.
func (s *shop) operators(t *testing.T) (alice, viewer *opsapi.Client) {
	t.Helper()
	const acts, looks = "alice-alice-alice-alice", "viewer-viewer-viewer-viewer"
	api, err := opsapi.New(opsapi.Config{Service: "order", Pool: s.pool, Own: s.service.own(),
		Flags: opsapi.Flags{OpsTokens: "alice:operator:" + acts + " viewer:viewer:" + looks}})
	if err != nil {
		t.Fatal(err)
	}
	router := httpserver.NewRouter("order ops")
	api.Mount(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	clients := make([]*opsapi.Client, 0, 2)
	for _, token := range []process.Secret{acts, looks} {
		c, err := opsapi.NewClient("order", server.URL, token)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	return clients[0], clients[1]
}

// waiting returns what operators see that waits.
func waiting(t *testing.T, c *opsapi.Client) []opsapi.Exception {
	t.Helper()
	page, err := c.Exceptions(t.Context(), "waiting", "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

func settleAll(t *testing.T, c *opsapi.Client, reason string, exceptions ...opsapi.Exception) int {
	t.Helper()
	s := opsapi.ExceptionSelection{Reason: reason}
	for _, e := range exceptions {
		s.IDs = append(s.IDs, strconv.FormatInt(e.ExceptionID, 10))
	}
	changed, err := c.SettleExceptions(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return changed.Changed
}

// Every reason for which a callback is kept can be ended by a person: nothing
// waits for ever.
func TestAPersonSettlesAPaymentExceptionOnceAndItIsRecorded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	alice, viewer := s.operators(t)
	o, paid, cancelled := s.placed(t), s.placed(t), s.placed(t)
	s.pay(t, paid, "pay_paid")
	s.cancel(t, cancelled.OrderID)
	wrong := announcement{kind: PaymentSucceeded, orderID: o.OrderID, paymentID: "pay_1", amount: 1, currency: "CNY"}
	s.announce(t, wrong)                                 // wrong amount
	s.pay(t, paid, "pay_again")                          // second payment
	s.pay(t, cancelled, "pay_late")                      // cancelled
	s.refund(t, o, "pay_never", "re_1", 5)               // held: its payment is unknown
	s.refund(t, paid, "pay_other", "re_2", 5)            // of another payment
	s.refund(t, orderView{OrderID: "x"}, "p", "re_3", 5) // of no order

	list := waiting(t, viewer)
	if len(list) != 6 {
		t.Fatalf("got %d exceptions, want 6: %+v", len(list), list)
	}
	if _, err := viewer.SettleExceptions(t.Context(), opsapi.ExceptionSelection{IDs: []string{"1"}, Reason: "no right to"}); err == nil {
		t.Error("a viewer could settle one")
	}
	if _, err := alice.SettleExceptions(t.Context(), opsapi.ExceptionSelection{IDs: []string{"1"}}); err == nil {
		t.Error("one was settled without a reason")
	}
	settled := make([]int, 5)
	atOnce(len(settled), func(i int) { settled[i] = settleAll(t, alice, "the provider has paid all of it back", list...) })
	if sum := settled[0] + settled[1] + settled[2] + settled[3] + settled[4]; sum != len(list) {
		t.Errorf("got %d settled by five people at once, want %d", sum, len(list))
	}
	if left := waiting(t, viewer); len(left) != 0 || len(s.exceptions(t)) != 0 {
		t.Errorf("got %+v, want nothing that waits", left)
	}
	if got := s.count(t, "operator_action WHERE actor = 'alice' AND action = 'settle' AND after->>'state' = 'settled'"); got != len(list) {
		t.Errorf("got %d actions, want %d", got, len(list))
	}
	s.announce(t, wrong) // the provider says it once more
	if left := waiting(t, viewer); len(left) != 0 {
		t.Errorf("got %+v, want the same announcement to stay settled", left)
	}
}

func TestAnExceptionIsShownWithItsHistoryAndWithoutItsValues(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	alice, viewer := s.operators(t)
	o := s.placed(t)
	body := strings.TrimSuffix(announcement{kind: PaymentSucceeded, orderID: o.OrderID, paymentID: "pay_1", amount: 1, currency: "CNY"}.body(), "}") +
		`,"payer":{"mail":"jane@example.org"}}`
	s.callback(t, "msg_1", body)
	e := waiting(t, viewer)[0]
	settleAll(t, alice, "paid back", e)
	detail, err := viewer.Exception(t.Context(), strconv.FormatInt(e.ExceptionID, 10))
	if err != nil {
		t.Fatal(err)
	}
	if detail.State != "settled" || detail.Bytes != len(body) || len(detail.Actions) != 1 || detail.Actions[0].Reason != "paid back" {
		t.Errorf("got %+v, want it settled by one action", detail)
	}
	shown, err := json.Marshal(detail)
	if err != nil || strings.Contains(string(shown), "jane") || !strings.Contains(string(detail.Masked), `"mail"`) {
		t.Errorf("got %s, %v, want the form of the announcement and no value", shown, err)
	}
	if _, err := viewer.Exception(t.Context(), "4711"); err == nil || !strings.Contains(err.Error(), "no exception") {
		t.Errorf("an unknown id: got %v", err)
	}
	evidence, err := viewer.Evidence(t.Context(), o.OrderID)
	if err != nil || len(evidence.Actions) != 1 {
		t.Errorf("got %+v, %v, want the action in the order's evidence", evidence.Actions, err)
	}
}

// Under an id that was used before, the shop keeps what the first callback said,
// which is not what the exception is about.
func TestAnExceptionDoesNotShowWhatAnotherCallbackSaid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, viewer := s.operators(t)
	o := s.placed(t)
	first := announcement{id: "msg_1", kind: PaymentFailed, orderID: o.OrderID, paymentID: "pay_1", amount: 1, currency: "CNY"}
	s.announce(t, first)
	first.kind = PaymentSucceeded
	if r := s.announce(t, first); r.result() != kept(ReasonCallbackReused) {
		t.Fatalf("got %s, want it kept for its id", r)
	}
	e := waiting(t, viewer)[0]
	detail, err := viewer.Exception(t.Context(), strconv.FormatInt(e.ExceptionID, 10))
	if err != nil || detail.Bytes != 0 || len(detail.Masked) != 0 {
		t.Errorf("got %d bytes, %s, %v, want no announcement", detail.Bytes, detail.Masked, err)
	}
}

// The person settled it because its payment would never come. Now it has: the
// order must not show more money than there is, and nobody may miss that.
func TestASettledRefundWhosePaymentComesAfterAllIsOpenedAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	alice, viewer := s.operators(t)
	o := s.placed(t)
	s.refund(t, o, "pay_1", "re_1", 5)
	s.refund(t, o, "pay_other", "re_2", 5)
	settleAll(t, alice, "no such payment", waiting(t, viewer)...)
	if r := s.pay(t, o, "pay_1"); r.result() != applied() {
		t.Fatalf("got %s, want the payment applied", r)
	}
	left := waiting(t, viewer)
	if len(left) != 1 || left[0].State != "open" || left[0].Reason != string(ReasonRefundSettled) || left[0].About["refund_id"] != "re_1" {
		t.Errorf("got %+v, want re_1 open again and re_2 settled", left)
	}
}

func TestAHeldRefundOfACancelledOrderIsForAPerson(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.placed(t)
	s.refund(t, o, "pay_1", "re_1", 5)
	s.cancel(t, o.OrderID)
	if got := s.exceptions(t); len(got) != 1 || got[0].State != ExceptionOpen || got[0].Reason != ReasonOrderCancelled {
		t.Errorf("got %+v, want it open: no payment will be taken any more", got)
	}
}

// Whoever takes the service away must know of money that nobody has looked
// after, and of what customers were promised.
func TestTheServiceIsUnfinishedUntilPromisesAreKeptAndExceptionsSettled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	alice, viewer := s.operators(t)
	left := func(want int64, when string) {
		t.Helper()
		if got, err := s.service.own().Unfinished(t.Context()); err != nil || got != want {
			t.Errorf("%s: got %d unfinished, %v, want %d", when, got, err, want)
		}
	}
	o := s.placed(t)
	left(0, "an order that waits for its customer")
	s.refund(t, o, "pay_other", "re_1", 5)
	s.refund(t, orderView{OrderID: "x"}, "p", "re_2", 5)
	left(2, "one refund is held and one open")
	s.pay(t, o, "pay_1")
	left(4, "points and mail are promised")
	s.exec(t, `UPDATE follow_up SET state = CASE kind WHEN 'points' THEN 'done' ELSE 'failed' END`)
	left(2, "the promises have ended")
	settleAll(t, alice, "the provider was wrong", waiting(t, viewer)...)
	left(0, "a person has settled the rest")
}

// C125: money was paid back, and the payment that it was of is never announced.
func TestARefundThatHasBeenHeldForAnHourIsForAPersonToo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, viewer := s.operators(t)
	o := s.placed(t)
	s.refund(t, o, "pay_never", "re_1", 5)
	for _, want := range []int{0, 1} {
		page, err := viewer.Exceptions(t.Context(), "open", "", "", 0)
		if err != nil || len(page.Items) != want {
			t.Fatalf("got %+v, %v, want %d for a person", page.Items, err, want)
		}
		invariants, err := s.service.invariants(t.Context())
		if err != nil || invariants[0].Count != want {
			t.Errorf("got %+v, %v, want %d payments that do not fit", invariants, err, want)
		}
		if _, err := s.pool.Exec(t.Context(), `UPDATE payment_exception SET first_seen_at = first_seen_at - interval '61 minutes'`); err != nil {
			t.Fatal(err)
		}
	}
	s.pay(t, o, "pay_never") // it comes after all
	if left := waiting(t, viewer); len(left) != 0 {
		t.Errorf("got %+v, want nothing that waits", left)
	}
}
