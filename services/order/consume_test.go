package order

import (
	"errors"
	"testing"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/opsapi"
)

func (s *shop) consumer() *messaging.Consumer {
	c := messaging.NewConsumer(followUpsConsumer, s.pool, membroker.New(Subscriptions()...), messaging.ConsumerConfig{})
	s.service.register(c)
	return c
}

func (s *shop) paid(t *testing.T) orderView {
	t.Helper()
	o := s.placed(t)
	s.pay(t, o, "pay_"+o.OrderID)
	return s.get(t, o.OrderID)
}

// followUp returns the follow-up of one kind.
func followUp(t *testing.T, o orderView, kind FollowUpKind) followUpView {
	t.Helper()
	for _, f := range o.FollowUps {
		if f.Kind == kind {
			return f
		}
	}
	t.Fatalf("order %s has no follow-up %s: %+v", o.OrderID, kind, o.FollowUps)
	return followUpView{}
}

func awarded(t *testing.T, orderID string, at time.Time) []byte {
	t.Helper()
	return messagingtest.Envelope(t, "pte_"+orderID, 1, PointsAwarded{OrderID: orderID, AwardedAt: at})
}

func sent(t *testing.T, orderID string, at time.Time) []byte {
	t.Helper()
	return messagingtest.Envelope(t, "ntf_"+orderID, 2, NotificationSent{OrderID: orderID, Template: templatePaid, SentAt: at})
}

func failed(t *testing.T, orderID, code string, at time.Time) []byte {
	t.Helper()
	return messagingtest.Envelope(t, "ntf_"+orderID, 1, NotificationFailed{OrderID: orderID, Template: templatePaid, Code: code, FailedAt: at})
}

func TestFollowUpsAreDoneWhenTheirServicesSaySo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o, other := s.paid(t), s.paid(t)
	at := o.PaidAt.Add(2 * time.Second)
	if answers := messagingtest.Deliver(t, s.consumer(), awarded(t, o.OrderID, at), sent(t, o.OrderID, at), awarded(t, other.OrderID, at)); !messagingtest.AllAcked(answers) {
		t.Fatalf("got %+v, want all acknowledged", answers)
	}
	for _, f := range s.get(t, o.OrderID).FollowUps {
		if f.State != FollowUpDone || !f.DoneAt.Equal(at) {
			t.Errorf("got %+v, want it done at %s", f, at)
		}
	}
	got := s.get(t, other.OrderID)
	if f := followUp(t, got, FollowUpPoints); f.State != FollowUpDone {
		t.Errorf("got %+v, want the points done", f)
	}
	if f := followUp(t, got, FollowUpNotification); f.State != FollowUpPending {
		t.Errorf("got %+v, want the mail pending", f)
	}
}

func TestFailedMailSaysWhyInWords(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.paid(t)
	messagingtest.Deliver(t, s.consumer(), failed(t, o.OrderID, "no_contact", o.PaidAt))
	f := followUp(t, s.get(t, o.OrderID), FollowUpNotification)
	want := "The mail that confirms the payment could not be delivered, and nobody is trying any more: no mail address is known."
	if f.State != FollowUpFailed || f.Code != "no_contact" || f.Says != want {
		t.Errorf("got %+v, want it failed: %q", f, want)
	}
}

// Two events of one notification may come in any order, and more than once:
// what is done stays done.
func TestMailThatWasSentAfterAllIsDoneInAnyOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, order := range []string{"failed first", "sent first"} {
		o := s.paid(t)
		first, second := failed(t, o.OrderID, "gave_up", o.PaidAt), sent(t, o.OrderID, o.PaidAt.Add(time.Second))
		if order == "sent first" {
			first, second = second, first
		}
		c := s.consumer()
		for _, message := range [][]byte{first, second, first, second} {
			messagingtest.Deliver(t, c, message)
		}
		if f := followUp(t, s.get(t, o.OrderID), FollowUpNotification); f.State != FollowUpDone || f.Code != "" {
			t.Errorf("%s: got %+v, want it done", order, f)
		}
	}
}

func TestMailOfAnotherKindSettlesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.paid(t)
	messagingtest.Deliver(t, s.consumer(),
		messagingtest.Envelope(t, "ntf_1", 1, NotificationSent{OrderID: o.OrderID, Template: "shipped", SentAt: o.PaidAt}),
		messagingtest.Envelope(t, "ntf_2", 1, NotificationFailed{OrderID: o.OrderID, Template: "shipped", Code: "rejected", FailedAt: o.PaidAt}))
	if f := followUp(t, s.get(t, o.OrderID), FollowUpNotification); f.State != FollowUpPending {
		t.Errorf("got %+v, want it pending", f)
	}
	if got, want := s.count(t, `message_inbox WHERE result = 'other_template'`), 2; got != want {
		t.Errorf("got %d inbox rows that say so, want %d", got, want)
	}
}

func TestNewsAboutAnOrderThatIsNotThereIsNotLost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.paid(t)
	missing := "ord_00000000000000000000000000000000"
	messagingtest.Deliver(t, s.consumer(), awarded(t, missing, o.PaidAt), awarded(t, o.OrderID, o.PaidAt))
	if f := followUp(t, s.get(t, o.OrderID), FollowUpPoints); f.State != FollowUpDone {
		t.Errorf("got %+v, want the order beside it done", f)
	}
	if got, want := s.count(t, `message_inbox`), 1; got != want {
		t.Errorf("got %d events applied, want %d", got, want)
	}
	if got, want := s.count(t, `message_failure WHERE error_code = 'unknown_order' AND error_class <> 'permanent'`), 1; got != want {
		t.Errorf("got %d events that wait to be tried again, want %d", got, want)
	}
}

func TestPromiseThatIsNotKeptIsLate(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.paid(t)
	s.exec(t, `UPDATE follow_up SET promised_by = now() - interval '1 minute' WHERE kind = 'points'`)
	got := s.get(t, o.OrderID)
	points := followUp(t, got, FollowUpPoints)
	if points.State != FollowUpLate || !points.Since.Equal(points.PromisedBy) {
		t.Errorf("got %+v, want it late since its promised time", points)
	}
	if f := followUp(t, got, FollowUpNotification); f.State != FollowUpPending {
		t.Errorf("got %+v, want it pending", f)
	}
	messagingtest.Deliver(t, s.consumer(), awarded(t, o.OrderID, time.Now()))
	if f := followUp(t, s.get(t, o.OrderID), FollowUpPoints); f.State != FollowUpDone {
		t.Errorf("got %+v, want it done in the end", f)
	}
}

func TestSubscriptionIsWhatTheHandlersTake(t *testing.T) {
	t.Parallel()
	subs := Subscriptions()
	if len(subs) != 1 || subs[0].Durable != "order-followups" || len(subs[0].Kinds) != 3 {
		t.Errorf("got %+v, want order-followups with three kinds", subs)
	}
}

func TestNewsAtATimeThatCannotBeWrittenIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	o := s.paid(t)
	at := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -(23*60+59)*60))
	messagingtest.Deliver(t, s.consumer(), awarded(t, o.OrderID, at), sent(t, o.OrderID, at), failed(t, o.OrderID, "rejected", time.Time{}))
	if got := s.count(t, `message_failure WHERE state = 'open' AND error_code = 'bad_data'`); got != 3 {
		t.Errorf("got %d dead letters, want 3", got)
	}
	for _, f := range s.get(t, o.OrderID).FollowUps {
		if f.State != FollowUpPending {
			t.Errorf("got %+v, want it pending", f)
		}
	}
}

func TestACursorOfFactsThatIsNoneIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, after := range []string{"rubbish", "rubbish 1", "2026-10-03T02:00:00Z x", "2026-10-03T02:00:00Z", "9999-12-31T23:59:59-23:59 1"} {
		if _, err := s.service.facts(t.Context(), opsapi.Window{Since: testTime, Until: testTime, After: after, Limit: 1}); !errors.Is(err, opsapi.ErrBadCursor) {
			t.Errorf("%q: got %v, want bad_cursor", after, err)
		}
	}
}
