package notify

import (
	"errors"
	"testing"
	"time"

	"github.com/wneessen/go-mail"

	"orderpaid/demo/sim"
)

func newTestMailer(t *testing.T, cfg MailerConfig) *Mailer {
	t.Helper()
	m, err := NewMailer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func testMail(t *testing.T) *mail.Msg {
	t.Helper()
	task := Task{ID: "ntf_1", OrderID: newOrder(), Total: Money{1990, "CNY", 2}, PaidAt: time.Now(), CreatedAt: time.Now()}
	msg, err := compose(task, Contact{"u1", "u1@customers.example", English}, "orders@shop.example", "ntf_1@shop.example")
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// C65, C96: what is about us or passes is not the mail's end, however
// permanent the server calls it, and what is about us does not use up its
// attempts (C120). C117: nor is a mailbox that is full.
func TestTheMailerSaysWhatIsKnownAboutAMail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault   sim.Fault
		outcome Outcome
		reply   string
	}{
		"sender refused for now":         {sim.Fault{Kind: "refuse", Stage: "sender", Code: 451}, Unavailable, "451 4.0.0"},
		"server's disk is full":          {sim.Fault{Kind: "refuse", Stage: "sender", Code: 452, Status: "4.3.1"}, Unavailable, "452 4.3.1"},
		"too many mails for a day":       {sim.Fault{Kind: "refuse", Code: 454, Text: "Throttling failure: Daily message quota exceeded."}, Unavailable, "454 4.0.0"},
		"recipient is not relayed to":    {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 454, Status: "4.7.1", Text: "Relay access denied"}, Deferred, "454 4.7.1"},
		"recipient is greylisted":        {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 451, Status: "4.3.2"}, Deferred, "451 4.3.2"},
		"sender refused for good":        {sim.Fault{Kind: "refuse", Stage: "sender", Code: 530}, Unavailable, "530 5.0.0"},
		"quota of the day used up":       {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550, Status: "5.4.5"}, Unavailable, "550 5.4.5"},
		"quota told after the mail":      {sim.Fault{Kind: "refuse", Code: 550, Status: "5.4.5"}, Unavailable, "550 5.4.5"},
		"we have not signed in":          {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 530, Status: "5.7.0"}, Unavailable, "530 5.7.0"},
		"server takes no mails":          {sim.Fault{Kind: "refuse", Code: 554, Status: "5.3.2"}, Deferred, "554 5.3.2"},
		"mailbox is full":                {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 552, Status: "5.2.2"}, Deferred, "552 5.2.2"},
		"mailbox is full at the end":     {sim.Fault{Kind: "refuse", Code: 552, Status: "5.2.2"}, Deferred, "552 5.2.2"},
		"mail is too big":                {sim.Fault{Kind: "refuse", Code: 552, Status: "5.3.4"}, Rejected, "552 5.3.4"},
		"server does not know us":        {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 554, Status: "5.7.1", Text: "<x@example.com>: Relay access denied"}, Deferred, "554 5.7.1"},
		"server relays no more":          {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550, Status: "5.7.1", Text: "Relaying denied"}, Deferred, "550 5.7.1"},
		"recipient's name is relay":      {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550, Status: "5.1.1", Text: "relay@example.com: no such user"}, Rejected, "550 5.1.1"},
		"another server is called relay": {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550, Status: "5.1.1", Text: "host relay1.example.net[192.0.2.1] said: no such user"}, Rejected, "550 5.1.1"},
		"server is unable to relay":      {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550, Status: "5.7.1", Text: "Unable to relay."}, Deferred, "550 5.7.1"},
		"mail is taken for spam":         {sim.Fault{Kind: "refuse", Code: 554, Status: "5.7.1"}, Rejected, "554 5.7.1"},
		"recipient refused for now":      {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 450}, Deferred, "450 4.0.0"},
		"recipient refused for good":     {sim.Fault{Kind: "refuse", Stage: "recipient", Code: 550}, Rejected, "550 5.0.0"},
		"mail refused for now":           {sim.Fault{Kind: "refuse", Code: 452}, Deferred, "452 4.0.0"},
		"mail refused for good":          {sim.Fault{Kind: "refuse", Code: 554}, Rejected, "554 5.0.0"},
		"server closing":                 {sim.Fault{Kind: "refuse", Code: 421}, Unavailable, "421 4.0.0"},
		"server closing at the greeting": {sim.Fault{Kind: "refuse", Stage: "hello", Code: 421}, Unavailable, ""},
		"connection lost after the mail": {sim.Fault{Kind: "drop", Keep: true}, Unanswered, ""},
		"connection lost with the mail":  {sim.Fault{Kind: "drop"}, Unanswered, ""},
		"no answer in time":              {sim.Fault{Kind: "hang", Keep: true}, Unanswered, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startMailServer(t, "127.0.0.1:0")
			cfg := MailerConfig{Addr: server.smtpAddr}
			if c.fault.Kind == "hang" {
				cfg.Timeout = time.Second
			}
			m := newTestMailer(t, cfg)
			server.setFaults(t, c.fault)
			if got := m.Send(t.Context(), testMail(t)); got.Outcome != c.outcome || got.Reply != c.reply {
				t.Errorf("got %+v, want %s %q", got, c.outcome, c.reply)
			}
			server.setFaults(t)
			if got := m.Send(t.Context(), testMail(t)); got.Outcome != Accepted {
				t.Errorf("without the fault: got %+v", got)
			}
		})
	}
}

// C77: a server ends what has been idle; the next mail is sent over another connection.
func TestAConnectionThatTheServerClosedMeanwhileCostsNothing(t *testing.T) {
	t.Parallel()
	first := startMailServer(t, "127.0.0.1:0")
	m := newTestMailer(t, MailerConfig{Addr: first.smtpAddr})
	if got := m.Send(t.Context(), testMail(t)); got.Outcome != Accepted {
		t.Fatalf("got %+v", got)
	}
	first.stop()
	if got := m.Send(t.Context(), testMail(t)); got.Outcome != Unavailable || got.Err == nil {
		t.Errorf("while there is no server: got %+v", got)
	}
	second := startMailServer(t, first.smtpAddr)
	for range 2 { // the second mail goes over the connection of the first
		if got := m.Send(t.Context(), testMail(t)); got.Outcome != Accepted {
			t.Errorf("after the restart: got %+v", got)
		}
	}
	if got := len(second.mails(t, "")); got != 2 {
		t.Errorf("got %d mails, want 2", got)
	}
}

func TestNoMailLeavesInTheClearWhenTLSIsDemanded(t *testing.T) {
	t.Parallel()
	server := startMailServer(t, "127.0.0.1:0") // it has no TLS
	for _, mode := range []TLSMode{TLSStart, TLSFromStart} {
		m := newTestMailer(t, MailerConfig{Addr: server.smtpAddr, TLS: mode, Timeout: 2 * time.Second})
		if got := m.Send(t.Context(), testMail(t)); got.Outcome != Unavailable {
			t.Errorf("%s: got %+v, want unavailable", mode, got)
		}
	}
	m := newTestMailer(t, MailerConfig{Addr: server.smtpAddr, Username: "shop", Password: "secret"})
	if got := m.Send(t.Context(), testMail(t)); got.Outcome != Unavailable {
		t.Errorf("with a password that the server does not ask for: got %+v, want unavailable", got)
	}
	if got := len(server.mails(t, "")); got != 0 {
		t.Errorf("%d mails left", got)
	}
}

func TestAMailThatWasAcceptedIsAcceptedWhateverFollows(t *testing.T) {
	t.Parallel()
	if got, reusable := judge(errors.New("the connection broke"), true); got.Outcome != Accepted || reusable {
		t.Errorf("got %+v, reusable %t", got, reusable)
	}
}

func TestMailServersThatCannotBeNamedAreRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []MailerConfig{{}, {Addr: "mail.example"}, {Addr: "mail.example:smtp-port"}, {Addr: "mail.example:25", TLS: "perhaps"}} {
		if _, err := NewMailer(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}
