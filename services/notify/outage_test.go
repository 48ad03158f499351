package notify

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/demo/sim"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/postgres"
)

func TestAnOutageOfTheMailServerSpendsNoBudget(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.stop()
	cfg := quick(1, 0) // nothing to spare
	f.startSending(t, cfg)
	order := newOrder()
	f.deliver(t, paid(t, order, "u1"), paid(t, newOrder(), "u2"))
	eventually(t, func() bool {
		return f.count(t, `SELECT sum(claim)::bigint FROM delivery_task`) >= 3 // several probes
	}, func() string { return "three attempts to reach the server" })
	for _, user := range []string{"u1", "u2"} {
		if got := f.notification(t, user); got.Attempts != 0 || got.Unknowns != 0 || got.State.Over() {
			t.Errorf("in the outage: got %+v", got)
		}
	}

	back := startMailServer(t, f.server.smtpAddr)
	f.requireState(t, "u1", Sent)
	f.requireState(t, "u2", Sent)
	if got := len(back.mails(t, order)); got != 1 {
		t.Errorf("got %d mails, want 1", got)
	}
}

func TestAServerThatRefusesTheSenderIsAnOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Stage: "sender", Code: 550, Times: 2})
	f.startSending(t, quick(1, 0))
	f.deliver(t, paid(t, newOrder(), "u1"))
	if got := f.requireState(t, "u1", Sent); got.Attempts != 0 {
		t.Errorf("got %+v", got)
	}
}

// C65: the quota of the day is used up, and the server calls that permanent.
// C120: it calls that, or its full disk, temporary, for longer than a mail has
// attempts.
func TestAQuotaThatIsUsedUpPutsMailsOffAndFailsNone(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]sim.Fault{
		"called permanent": {Kind: "refuse", Stage: "recipient", Code: 550, Status: "5.4.5", Times: 3},
		"called temporary": {Kind: "refuse", Code: 454, Times: 3},
		"a disk is full":   {Kind: "refuse", Stage: "sender", Code: 452, Status: "4.3.1", Times: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.server.setFaults(t, fault)
			f.startSending(t, quick(1, 0)) // nothing to spare
			f.deliver(t, paid(t, newOrder(), "u1"), paid(t, newOrder(), "u2"))
			for _, user := range []string{"u1", "u2"} {
				if got := f.requireState(t, user, Sent); got.Attempts != 0 {
					t.Errorf("got %+v, want no attempt that counts", got)
				}
			}
		})
	}
}

// C96: the server forgets who we are, and relays for nobody until that is mended.
func TestAServerThatRelaysNoMoreFailsNoMailWhileItIsMended(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Stage: "recipient", Code: 554, Status: "5.7.1", Text: "Relay access denied", Times: 3})
	f.startSending(t, quick(12, 0))
	f.deliver(t, paid(t, newOrder(), "u1"), paid(t, newOrder(), "u2"))
	for _, user := range []string{"u1", "u2"} {
		f.requireState(t, user, Sent)
	}
}

func TestAMailWhoseSenderDiedCountsAsUnanswered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		repeats int
		want    State
		mails   int
	}{
		"and is sent again":                      {1, Sent, 1},
		"and is left alone if that is forbidden": {0, Unknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			order := newOrder()
			f.deliver(t, paid(t, order, "u1"))
			// A sender claims the mail and is never heard of again.
			if tasks, err := claimTasks(t.Context(), f.pool, 10, 50*time.Millisecond); err != nil || len(tasks) != 1 {
				t.Fatalf("claimed %d mails, %v", len(tasks), err)
			}
			f.startSending(t, quick(3, c.repeats))
			if got := f.requireState(t, "u1", c.want); got.Unknowns != 1 {
				t.Errorf("got %+v", got)
			}
			if got := len(f.server.mails(t, order)); got != c.mails {
				t.Errorf("got %d mails, want %d", got, c.mails)
			}
		})
	}
}

// claimOne queues a mail and claims it under a lease that is over at once.
func claimOne(t *testing.T, f fixture) claimed {
	t.Helper()
	f.deliver(t, paid(t, newOrder(), "u1"))
	tasks, err := claimTasks(t.Context(), f.pool, 10, 0)
	if err != nil || len(tasks) != 1 {
		t.Fatalf("claimed %d mails, %v", len(tasks), err)
	}
	return tasks[0]
}

func TestOnlyTheNewestClaimMaySettleExceptThatAnAcceptanceIsAFact(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := f.newDelivery(t, quick(3, 1))
	old := claimOne(t, f)
	again, err := claimTasks(t.Context(), f.pool, 10, time.Minute)
	if err != nil || len(again) != 1 || !again[0].abandoned || again[0].number != old.number+1 {
		t.Fatalf("second claim: got %+v, %v", again, err)
	}
	for _, outcome := range []Outcome{Deferred, Rejected, Unanswered, Unavailable} {
		if err := settleNow(t, f, d, old, outcome); !errors.Is(err, errTaken) {
			t.Errorf("%s by the old claim: got %v, want errTaken", outcome, err)
		}
	}
	if err := settleNow(t, f, d, old, Accepted); err != nil {
		t.Errorf("accepted, by the old claim: %v", err)
	}
	if err := settleNow(t, f, d, again[0], Rejected); !errors.Is(err, errTaken) {
		t.Errorf("rejected after it was sent: got %v, want errTaken", err)
	}
	if err := settleNow(t, f, d, again[0], Accepted); !errors.Is(err, errTaken) {
		t.Errorf("accepted twice: got %v, want errTaken", err)
	}
	if got := f.notification(t, "u1"); got.State != Sent {
		t.Errorf("got %+v", got)
	}
	messagingtest.RequireStaged[NotificationSent](t, f.pool)
}

func settleNow(t *testing.T, f fixture, d *Delivery, c claimed, o Outcome) error {
	t.Helper()
	return postgres.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := d.settleOnce(t.Context(), tx, c, Result{Outcome: o})
		return err
	})
}

func TestAContactThatArrivesWhileItsAbsenceIsWrittenDownIsNotMissed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := quick(3, 1)
	cfg.ContactDomain = ""
	d := f.newDelivery(t, cfg)
	task := claimOne(t, f) // there was no contact when it was claimed
	if _, err := f.service.PutContact(t.Context(), Contact{"u1", "jo@mail.example", English}); err != nil {
		t.Fatal(err)
	}
	if err := settleNow(t, f, d, task, NoAddress); err != nil {
		t.Fatal(err)
	}
	if got := f.notification(t, "u1"); got.State != Queued {
		t.Errorf("got %+v, want queued", got)
	}
}

// A look for a contact that finds none holds the user's lock to its end, so a
// contact that arrives meanwhile waits, and then finds the mail that failed.
func TestAContactWaitsForWhoeverIsFindingThatThereIsNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := quick(3, 1)
	cfg.ContactDomain = ""
	d := f.newDelivery(t, cfg)
	task := claimOne(t, f)
	put := make(chan error, 1)
	err := postgres.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
		if _, err := d.settleOnce(t.Context(), tx, task, Result{Outcome: NoAddress}); err != nil {
			return err
		}
		go func() {
			_, err := f.service.PutContact(t.Context(), Contact{"u1", "jo@mail.example", English})
			put <- err
		}()
		eventually(t, func() bool {
			return f.count(t, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 1
		}, func() string { return "the contact waits" })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	if got := f.notification(t, "u1"); got.State != Queued {
		t.Errorf("got %+v, want queued", got)
	}
}

// C90: the server knows nobody at the address, and the customer corrects it.
func TestAMailThatWasRefusedIsSentToTheCorrectedAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550, Status: "5.1.1", To: "jp@"})
	f.startSending(t, quick(3, 1))
	contact := func(email string) (revived int64) {
		revived, err := f.service.PutContact(t.Context(), Contact{"u1", email, English})
		if err != nil {
			t.Fatal(err)
		}
		return revived
	}
	contact("jp@mail.example")
	order := newOrder()
	f.deliver(t, paid(t, order, "u1"))
	f.requireState(t, "u1", Failed)
	if got := contact("jp@mail.example"); got != 0 {
		t.Errorf("under the same address %d mails are tried again, want none", got)
	}
	if got := contact("jo@mail.example"); got != 1 {
		t.Errorf("under the corrected address %d mails are tried again, want 1", got)
	}
	f.requireState(t, "u1", Sent)
	if mails := f.server.mails(t, order); len(mails) != 1 || mails[0].To[0] != "jo@mail.example" {
		t.Errorf("got %+v, want one to the corrected address", mails)
	}
	if got := contact("jp@mail.example"); got != 0 {
		t.Errorf("what was sent is sent again %d times", got)
	}
}

// C90: the address is corrected while the refusal of the old one is written down.
func TestACorrectionThatArrivesWithTheRefusalIsNotMissed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.service.PutContact(t.Context(), Contact{"u1", "jp@mail.example", English}); err != nil {
		t.Fatal(err)
	}
	d := f.newDelivery(t, quick(3, 1))
	task := claimOne(t, f)
	if _, err := f.service.PutContact(t.Context(), Contact{"u1", "jo@mail.example", English}); err != nil {
		t.Fatal(err)
	}
	if err := settleNow(t, f, d, task, Rejected); err != nil {
		t.Fatal(err)
	}
	if got := f.notification(t, "u1"); got.State != Queued {
		t.Errorf("got %+v, want queued", got)
	}
}

// C90: the server puts off the mails for an address that is wrong until they are
// given up; at the corrected one the mail has all of its attempts.
func TestAMailThatWasGivenUpIsSentToTheCorrectedAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.setFaults(t, sim.Fault{Kind: "refuse", Stage: "recipient", Code: 450, To: "jp@"},
		sim.Fault{Kind: "refuse", Stage: "recipient", Code: 450, To: "jo@", Times: 2})
	f.startSending(t, quick(3, 1))
	if _, err := f.service.PutContact(t.Context(), Contact{"u1", "jp@mail.example", English}); err != nil {
		t.Fatal(err)
	}
	f.deliver(t, paid(t, newOrder(), "u1"))
	f.requireState(t, "u1", Failed)
	if got, err := f.service.PutContact(t.Context(), Contact{"u1", "jo@mail.example", English}); err != nil || got != 1 {
		t.Errorf("got %d mails that are tried again, %v, want 1", got, err)
	}
	if got := f.requireState(t, "u1", Sent); got.Attempts != 2 {
		t.Errorf("got %d attempts at the new address, want 2", got.Attempts)
	}
}

// C113: somebody writes down an address long after he has bought.
func TestAnAddressThatComesLateBringsNoOldMails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := quick(3, 1)
	cfg.ContactDomain = ""
	f.startSending(t, cfg)
	old, fresh := newOrder(), newOrder()
	f.deliver(t, paid(t, old, "u1"), paid(t, fresh, "u1"))
	eventually(t, func() bool { return f.count(t, `SELECT count(*) FROM delivery_task WHERE state = 'failed'`) == 2 },
		func() string { return "both mails failed" })
	if _, err := f.pool.Exec(t.Context(), `UPDATE delivery_task SET created_at = now() - interval '8 days' WHERE order_id = $1`, old); err != nil {
		t.Fatal(err)
	}
	if got, err := f.service.PutContact(t.Context(), Contact{"u1", "jo@mail.example", English}); err != nil || got != 1 {
		t.Errorf("got %d mails that are sent now, %v, want the new one", got, err)
	}
	eventually(t, func() bool { return f.count(t, `SELECT count(*) FROM delivery_task WHERE state = 'sent'`) == 1 },
		func() string { return "one mail is sent" })
	if got := f.server.mails(t, old); len(got) != 0 {
		t.Errorf("got %+v, want no mail about the old order", got)
	}
}
