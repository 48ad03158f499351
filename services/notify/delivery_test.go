package notify

import (
	"strings"
	"testing"
	"time"

	"orderpaid/demo/sim"
	"orderpaid/platform/messaging/messagingtest"
)

func TestAPaidOrderIsMailedAndSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.startSending(t, quick(3, 1))
	order := newOrder()
	f.deliver(t, paid(t, order, "u1"))

	got := f.requireState(t, "u1", Sent)
	mails := f.server.mails(t, order)
	if len(mails) != 1 || mails[0].To[0] != "u1@customers.example" || mails[0].MessageID != "<"+got.NotificationID+"@shop.example>" {
		t.Fatalf("got %+v", mails)
	}
	sent := messagingtest.RequireStaged[NotificationSent](t, f.pool)
	if sent.Data.NotificationID != got.NotificationID || sent.Data.OrderID != order || sent.Data.MessageID != mails[0].MessageID ||
		sent.AggregateID != got.NotificationID || sent.AggregateVersion != 1 || sent.CorrelationID != order || sent.CausationID == "" {
		t.Errorf("stated: %+v", sent)
	}
}

func TestAMailThatIsPutOffIsSentLater(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Stage: "recipient", Code: 450, Times: 2}, sim.Fault{Kind: "refuse", Code: 451, Times: 1})
	f.startSending(t, quick(10, 1))
	order := newOrder()
	f.deliver(t, paid(t, order, "u1"))
	if got := f.requireState(t, "u1", Sent); got.Attempts != 3 || got.Code != "" {
		t.Errorf("got %+v, want 3 counted attempts before it", got)
	}
	if got := len(f.server.mails(t, order)); got != 1 {
		t.Errorf("got %d mails, want 1", got)
	}
}

func TestAMailThatIsPutOffTooOftenIsGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Code: 451})
	f.startSending(t, quick(3, 1))
	f.deliver(t, paid(t, newOrder(), "u1"))
	if got := f.requireState(t, "u1", Failed); got.Attempts != 3 || got.Code != "gave_up" || got.Reply != "451 4.0.0" {
		t.Errorf("got %+v", got)
	}
	if got := messagingtest.RequireStaged[NotificationFailed](t, f.pool); got.Data.Code != "gave_up" {
		t.Errorf("stated: %+v", got.Data)
	}
}

func TestAMailThatIsRefusedForGoodFailsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550, To: "u1@"})
	f.startSending(t, quick(3, 1))
	f.deliver(t, paid(t, newOrder(), "u1"), paid(t, newOrder(), "u2"))
	if got := f.requireState(t, "u1", Failed); got.Attempts != 0 || got.Code != "rejected" || got.Reply != "550 5.0.0" {
		t.Errorf("got %+v", got)
	}
	f.requireState(t, "u2", Sent)
	got := messagingtest.RequireStaged[NotificationFailed](t, f.pool)
	if got.Data.Code != "rejected" || got.Data.UserID != "u1" || got.AggregateVersion != 1 {
		t.Errorf("stated: %+v", got)
	}
}

// C25: the repetition says that it is one.
func TestAnUnansweredMailIsRepeatedOnceUnderTheSameMessageID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "drop", Keep: true, Times: 1})
	f.startSending(t, quick(3, 1))
	order := newOrder()
	f.deliver(t, paid(t, order, "u1"))
	if got := f.requireState(t, "u1", Sent); got.Unknowns != 1 {
		t.Errorf("got %+v, want one unanswered attempt", got)
	}
	mails := f.server.mails(t, order)
	if len(mails) != 2 || mails[0].MessageID != mails[1].MessageID || mails[0].Text != mails[1].Text ||
		mails[0].Header["Date"][0] != mails[1].Header["Date"][0] {
		t.Errorf("got %+v, want the same mail twice", mails)
	}
	messagingtest.RequireStaged[NotificationSent](t, f.pool)
}

// C25: the server may have taken the mail before the connection broke, so not
// having an answer is no reason to send for ever.
func TestAMailThatIsNeverAnsweredStaysUnknownAndIsNotLooped(t *testing.T) {
	t.Parallel()
	for name, repeats := range map[string]int{"never twice": 0, "once more": 1} {
		for kind, fault := range map[string]sim.Fault{
			"dropped": {Kind: "drop", Keep: true},
			"hung":    {Kind: "hang", Keep: true, DelayMS: 50},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				f.server.setFaults(t, fault)
				f.startSending(t, quick(3, repeats))
				order := newOrder()
				f.deliver(t, paid(t, order, "u1"))
				if got := f.requireState(t, "u1", Unknown); got.Code != "outcome_unknown" || got.Unknowns != repeats+1 {
					t.Errorf("got %+v", got)
				}
				f.server.setFaults(t) // from here on it would be accepted
				f.deliver(t, paid(t, newOrder(), "u2"))
				f.requireState(t, "u2", Sent)
				if got, want := len(f.server.mails(t, order)), repeats+1; got != want {
					t.Errorf("the customer has %d mails, want %d", got, want)
				}
				if got := messagingtest.RequireStaged[NotificationFailed](t, f.pool); got.Data.Code != "outcome_unknown" {
					t.Errorf("stated: %+v", got.Data)
				}
			})
		}
	}
}

func TestWithoutAContactAMailFailsAndAContactRevivesIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := quick(3, 1)
	cfg.ContactDomain = ""
	f.startSending(t, cfg)
	order := newOrder()
	f.deliver(t, paid(t, order, "u1"))
	if got := f.requireState(t, "u1", Failed); got.Code != "no_contact" {
		t.Errorf("got %+v", got)
	}
	if got := messagingtest.RequireStaged[NotificationFailed](t, f.pool); got.Data.Code != "no_contact" || got.AggregateVersion != 1 {
		t.Errorf("stated: %+v", got)
	}

	var answer struct{ Revived int }
	if status := f.request(t, "PUT", "/v1/users/u1/contact", `{"email":"jo@mail.example","locale":"ja"}`, &answer); status != 200 || answer.Revived != 1 {
		t.Errorf("put contact: status %d, %+v", status, answer)
	}
	f.requireState(t, "u1", Sent)
	if mails := f.server.mails(t, order); len(mails) != 1 || mails[0].To[0] != "jo@mail.example" || !strings.Contains(mails[0].Subject, "お支払い") {
		t.Errorf("got %+v", mails)
	}
	if got := messagingtest.RequireStaged[NotificationSent](t, f.pool); got.AggregateVersion != 2 {
		t.Errorf("stated: %+v, want version 2", got)
	}
}

func TestAStopFinishesTheMailThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "slow", DelayMS: 500})
	stop := f.startSending(t, quick(3, 1))
	order := newOrder()
	f.deliver(t, paid(t, order, "u1"))
	f.requireState(t, "u1", Sending)
	stop()
	if got := f.notification(t, "u1"); got.State != Sent || got.Unknowns != 0 {
		t.Errorf("after the stop: got %+v, want sent", got)
	}
}

// C82: a claim takes as many as it may and not one more.
func TestNoMoreMailsAreOnTheirWayThanAllowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "slow", DelayMS: 30})
	cfg := quick(3, 1)
	cfg.Concurrency = 3
	f.startSending(t, cfg)
	var events [][]byte
	for range 20 {
		events = append(events, paid(t, newOrder(), "u1"))
	}
	f.deliver(t, events...)
	var most int64
	eventually(t, func() bool {
		most = max(most, f.count(t, `SELECT count(*) FROM delivery_task WHERE state = 'sending'`))
		return f.count(t, `SELECT count(*) FROM delivery_task WHERE state = 'sent'`) == 20
	}, func() string { return "20 mails sent" })
	if most > 3 {
		t.Errorf("%d mails were on their way at the same time, allowed are 3", most)
	}
}

func TestTwoSendersOnOneDatabaseSendEachMailOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var events [][]byte
	for range 100 {
		events = append(events, paid(t, newOrder(), "u1"))
	}
	f.deliver(t, events...)
	f.startSending(t, quick(3, 1))
	f.startSending(t, quick(3, 1))
	eventually(t, func() bool {
		return f.count(t, `SELECT count(*) FROM delivery_task WHERE state = 'sent'`) == 100
	}, func() string { return "100 mails sent" })
	ids := map[string]int{}
	for _, m := range f.server.mails(t, "") {
		ids[m.MessageID]++
	}
	if len(ids) != 100 {
		t.Errorf("got %d different mails, want 100", len(ids))
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("mail %s arrived %d times", id, n)
		}
	}
	if got := len(messagingtest.Staged[NotificationSent](t, f.pool)); got != 100 {
		t.Errorf("stated: got %d, want 100", got)
	}
}

func TestAddressesDoNotReachTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t,
		sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550, To: "refused@"}, sim.Fault{Kind: "refuse", Code: 451, To: "later@"},
		sim.Fault{Kind: "drop", To: "dropped@"})
	stop := f.startSending(t, quick(2, 0))
	var events [][]byte
	for _, user := range []string{"refused", "later", "dropped"} {
		events = append(events, paid(t, newOrder(), user))
	}
	f.deliver(t, events...)
	for user, state := range map[string]State{"refused": Failed, "later": Failed, "dropped": Unknown} {
		f.requireState(t, user, state)
	}
	stop()
	logged := f.logged.String()
	if !strings.Contains(logged, "mail not sent") {
		t.Fatalf("nothing about the mails was logged: %s", logged)
	}
	if strings.Contains(logged, "@") || strings.Contains(logged, "customers.example") {
		t.Errorf("an address was logged: %s", logged)
	}
}

func TestALeaseThatEndsBeforeAMailCanIsRefused(t *testing.T) {
	t.Parallel()
	mailer, err := NewMailer(MailerConfig{Addr: "127.0.0.1:25", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewDelivery(nil, nil, mailer, DeliveryConfig{From: "orders@shop.example", Lease: time.Minute}); err == nil {
		t.Error("accepted")
	}
}
