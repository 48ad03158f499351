package shopctl_test

import (
	"slices"
	"testing"

	"orderpaid/operator"
)

// unpaid brings the order service's database back to a time before an order was
// paid. What others have made of the payment stays.
func (w *world) unpaid(t *testing.T, order string) {
	t.Helper()
	for _, sql := range []string{
		`DELETE FROM message_outbox_publication WHERE event_id IN (SELECT event_id FROM message_outbox WHERE aggregate_id = $1 AND aggregate_version > 1)`,
		`DELETE FROM message_outbox WHERE aggregate_id = $1 AND aggregate_version > 1`,
		`DELETE FROM follow_up WHERE order_id = $1`,
		`DELETE FROM payment WHERE order_id = $1`,
		`DELETE FROM payment_callback WHERE order_id = $1`,
		`DELETE FROM order_history WHERE order_id = $1 AND version > 1`,
		`UPDATE orders SET state = 'PENDING_PAYMENT', version = 1, points = 0, paid_at = NULL WHERE order_id = $1`,
	} {
		w.exec(t, "order", sql, order)
	}
}

// C139: the owner of two orders was restored to a time before they were paid, and
// makes the second version of each once more, as another event. The versions of
// one were raised before, as the runbook says: search follows that one. That it
// passes the other one over is found.
func TestAHistoryThatIsMadeAnewAfterARestoreIsFollowedOrNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forked, raised := w.pay(t), w.pay(t)
	w.awaitIdle(t)
	w.unpaid(t, forked)
	w.unpaid(t, raised)
	w.exec(t, "order", `UPDATE orders SET version = version + 100 WHERE order_id = $1`, raised)
	for _, order := range []string{forked, raised} {
		post(t, "http://"+w.httpAddr["order"]+"/v1/orders/"+order+"/cancel", `{"reason":"the restored shop says that it is not paid"}`, nil)
	}
	eventually(t, "search has followed one and passed the other one over", func() bool {
		return w.pending(t) == 0 &&
			w.count(t, "search", `SELECT count(*) FROM order_document WHERE order_id = $1 AND state = 'CANCELLED'`, raised) == 1 &&
			w.count(t, "search", `SELECT count(*) FROM message_inbox WHERE aggregate_id = $1 AND result = 'stale'`, forked) == 1
	})
	report, clean := w.reconcile(t)
	var found []string
	for _, f := range report.Findings {
		if f.Check == operator.CheckForked {
			found = append(found, f.Event.AggregateID)
		}
	}
	if clean || !slices.Equal(found, []string{forked}) {
		t.Errorf("got %v passed over, want %s", found, forked)
	}
}
