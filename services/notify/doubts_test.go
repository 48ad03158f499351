package notify

import (
	"errors"
	"testing"

	"orderpaid/demo/sim"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/opsapi"
)

// inDoubt makes a mail that the server has taken and never acknowledged. From
// then on it would accept.
func (f fixture) inDoubt(t *testing.T) (desk opsapi.DoubtDesk, order string) {
	t.Helper()
	f.server.setFaults(t, sim.Fault{Kind: "drop", Keep: true})
	stop := f.startSending(t, quick(3, 0))
	order = newOrder()
	f.deliver(t, paid(t, order, "u1"))
	f.requireState(t, "u1", Unknown)
	stop()
	f.server.setFaults(t)
	return f.newDelivery(t, quick(3, 0)).doubts(f.pool), order
}

var alice = messaging.Actor{Name: "alice", Reason: "looked into the server's log"}

func TestAPersonSaysThatAMailInDoubtArrivedAndItIsStated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	desk, order := f.inDoubt(t)
	doubts, err := desk.List(t.Context(), "", 10)
	if err != nil || len(doubts) != 1 || doubts[0].Key != order || doubts[0].Code != "outcome_unknown" {
		t.Fatalf("got %+v, %v, want the mail of order %s", doubts, err, order)
	}
	if rest, err := desk.List(t.Context(), doubts[0].ID, 10); err != nil || len(rest) != 0 {
		t.Errorf("got %+v, %v behind the last one, want none", rest, err)
	}
	if err := desk.Settle(t.Context(), doubts[0].ID, true, alice); err != nil {
		t.Fatal(err)
	}
	f.requireState(t, "u1", Sent)
	if got := messagingtest.RequireStaged[NotificationSent](t, f.pool); got.Data.NotificationID != doubts[0].ID || got.AggregateVersion != 2 {
		t.Errorf("stated: %+v, want version 2 of %s", got, doubts[0].ID)
	}
	if got, want := len(f.server.mails(t, order)), 1; got != want {
		t.Errorf("the customer has %d mails, want %d", got, want)
	}
	actions, err := messaging.NewHistory(f.pool).ActionsOn(t.Context(), opsapi.DoubtTarget(doubts[0].ID))
	if err != nil || len(actions) != 1 || actions[0].Actor != alice.Name || actions[0].Reason != alice.Reason {
		t.Errorf("got %+v, %v, want one action of alice with her reason", actions, err)
	}
	if err := desk.Settle(t.Context(), doubts[0].ID, false, alice); !errors.Is(err, opsapi.ErrNoDoubt) {
		t.Errorf("got %v for a second decision, want ErrNoDoubt", err)
	}
}

func TestAPersonHasAMailInDoubtSentOnceMoreUnderItsMessageID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	desk, order := f.inDoubt(t)
	doubts, err := desk.List(t.Context(), "", 10)
	if err != nil || len(doubts) != 1 {
		t.Fatalf("got %+v, %v, want one doubt", doubts, err)
	}
	if err := desk.Settle(t.Context(), doubts[0].ID, false, messaging.Actor{Name: "alice"}); !errors.Is(err, messaging.ErrNoReason) {
		t.Errorf("got %v without a reason, want ErrNoReason", err)
	}
	f.requireState(t, "u1", Unknown)
	if err := desk.Settle(t.Context(), doubts[0].ID, false, alice); err != nil {
		t.Fatal(err)
	}
	f.startSending(t, quick(3, 0))
	f.requireState(t, "u1", Sent)
	mails := f.server.mails(t, order)
	if len(mails) != 2 || mails[0].MessageID != mails[1].MessageID {
		t.Errorf("got %+v, want two mails of one Message-ID", mails)
	}
}

// C93: the server was told wrongly to refuse our mails, and is mended.
func TestAPersonHasAMailSentThatWasGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Stage: "recipient", Code: 554, Status: "5.7.1"})
	stop := f.startSending(t, quick(3, 0))
	order := newOrder()
	f.deliver(t, paid(t, order, "u1"))
	failed := f.requireState(t, "u1", Failed)
	stop()
	f.server.setFaults(t)
	desk := f.newDelivery(t, quick(3, 0)).doubts(f.pool)
	if doubts, err := desk.List(t.Context(), "", 10); err != nil || len(doubts) != 0 {
		t.Errorf("got %+v, %v, want no doubt about it", doubts, err)
	}
	if err := desk.Settle(t.Context(), failed.NotificationID, true, alice); !errors.Is(err, opsapi.ErrNoDoubt) {
		t.Errorf("got %v for a mail that cannot have arrived, want ErrNoDoubt", err)
	}
	if err := desk.Settle(t.Context(), failed.NotificationID, false, alice); err != nil {
		t.Fatal(err)
	}
	f.startSending(t, quick(3, 0))
	f.requireState(t, "u1", Sent)
	if got := len(f.server.mails(t, order)); got != 1 {
		t.Errorf("the customer has %d mails, want 1", got)
	}
	actions, err := messaging.NewHistory(f.pool).ActionsOn(t.Context(), opsapi.DoubtTarget(failed.NotificationID))
	if err != nil || len(actions) != 1 || actions[0].Actor != alice.Name {
		t.Errorf("got %+v, %v, want one action of alice", actions, err)
	}
}

// Whoever takes the service away must not lose a mail that has not been sent, or
// of which nobody knows whether it was.
func TestTheServiceIsUnfinishedUntilEachMailHasEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	left := func(want int64, when string) {
		t.Helper()
		if got, err := f.service.own().Unfinished(t.Context()); err != nil || got != want {
			t.Errorf("%s: got %d unfinished, %v, want %d", when, got, err, want)
		}
	}
	left(0, "at first")
	desk, _ := f.inDoubt(t)
	left(1, "in doubt")
	f.deliver(t, paid(t, newOrder(), "u2"))
	left(2, "and another one queued")
	f.startSending(t, quick(3, 0))
	f.requireState(t, "u2", Sent)
	left(1, "which is sent")
	if err := desk.Settle(t.Context(), f.notification(t, "u1").NotificationID, true, alice); err != nil {
		t.Fatal(err)
	}
	left(0, "and nobody doubts any more")
}
