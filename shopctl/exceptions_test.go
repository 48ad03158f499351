package shopctl_test

import (
	"fmt"
	"strings"
	"testing"
)

// What the provider announced and no order shows is a person's to end, and
// reconciliation says so for as long as nobody has.
func TestAPersonFindsAndSettlesWhatTheProviderAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	order := w.pay(t)
	post(t, w.provider, fmt.Sprintf(`{"order_id":%q,"amount":1,"currency":"JPY","exponent":0}`, order), nil)
	var list string
	eventually(t, "the second payment waits for a person", func() bool {
		list = w.must(t, viewer, "exceptions list --service order")
		return strings.Contains(list, order)
	})
	var ref string
	for _, field := range strings.Fields(list) {
		if strings.HasPrefix(field, "order/") {
			ref = field
		}
	}
	requireIn(t, list, "open", "payment.succeeded")
	if _, err := w.as(t, viewer, "exceptions settle", ref, "--reason=no right to"); err == nil {
		t.Error("a viewer could settle one")
	}
	requireIn(t, w.must(t, alice, "exceptions settle", ref, "--reason=paid back by the provider"), "order: 1 settled")
	requireNothingSettled(t, w, ref, ref+" is settled")
	requireNothingSettled(t, w, "order/99999", "order/99999 does not exist")
	requireIn(t, w.must(t, viewer, "exceptions show", ref), "settled", "alice", "paid back by the provider")
	if list := w.must(t, viewer, "exceptions list"); strings.Contains(list, order) {
		t.Errorf("got %s, want nothing that waits", list)
	}
	requireIn(t, w.must(t, viewer, "exceptions list --state settled"), order)
}

func requireNothingSettled(t *testing.T, w *world, ref, why string) {
	t.Helper()
	out, err := w.as(t, alice, "exceptions settle", ref, "--reason=once more")
	if err == nil || !strings.Contains(err.Error(), "nothing was settled") {
		t.Errorf("%s: got %v, want an error", ref, err)
	}
	requireIn(t, out, "order: 0 settled", why)
}
