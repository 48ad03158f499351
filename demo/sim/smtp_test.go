package sim

import (
	"errors"
	"net/http"
	"net/textproto"
	"testing"
	"time"
)

const testOrder = "ord_01932f4e5b8c7d3a9e1f60718293a4b5"

func TestAMailCanBeReadAsItsReaderWouldSeeIt(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	if err := w.send(t, "u1@shop.example", "1", "Order "+testOrder+" is paid."); err != nil {
		t.Fatal(err)
	}
	if err := w.send(t, "u2@shop.example", "2", "Nothing."); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"order=" + testOrder, "to=u1@shop.example", "message_id=%3C1%3E"} {
		got := w.mails(t, query)
		if len(got) != 1 {
			t.Fatalf("%s: got %d mails, want 1", query, len(got))
		}
		if got[0].Subject != "支付" || got[0].Text != "Order "+testOrder+" is paid.\n" || got[0].MessageID != "<1>" {
			t.Errorf("%s: got %+v", query, got[0])
		}
	}
	if got := w.mails(t, "offset=1"); len(got) != 1 || got[0].MessageID != "<2>" {
		t.Errorf("behind the first mail: got %+v", got)
	}
	if status := w.call(t, "DELETE", "/mails", nil, nil); status != http.StatusNoContent {
		t.Errorf("deleting: status %d", status)
	}
	if got := w.mails(t, ""); len(got) != 0 {
		t.Errorf("after deleting: got %d mails", len(got))
	}
}

func TestARefusedMailIsNotKept(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]Fault{
		"for now, after the text":  {Kind: refuse, Code: 451, Times: 1},
		"for good, after the text": {Kind: refuse, Code: 554, Times: 1},
		"by the sender":            {Kind: refuse, Stage: atSender, Code: 550, Times: 1},
		"by the recipient":         {Kind: refuse, Stage: atRecipient, Code: 550, Times: 1},
		// Two times: a client that is refused at EHLO tries HELO.
		"before anything": {Kind: refuse, Stage: atHello, Code: 421, Times: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, "")
			w.setFaults(t, fault)
			err := w.send(t, "u1@shop.example", "1", "x")
			var answer *textproto.Error
			if !errors.As(err, &answer) || answer.Code != fault.Code {
				t.Fatalf("got %v, want code %d", err, fault.Code)
			}
			if got := w.mails(t, ""); len(got) != 0 {
				t.Errorf("kept %d mails", len(got))
			}
			if err := w.send(t, "u1@shop.example", "1", "x"); err != nil {
				t.Errorf("the fault was for one mail, and the next one got %v", err)
			}
		})
	}
}

func TestADroppedConnectionDoesNotTellWhetherTheMailWasKept(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"kept": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, "")
			w.setFaults(t, Fault{Kind: drop, Keep: keep, To: "u1@"})
			err := w.send(t, "u1@shop.example", "1", "x")
			var answer *textproto.Error
			if err == nil || errors.As(err, &answer) {
				t.Errorf("got %v, want a broken connection", err)
			}
			if got := len(w.mails(t, "")) == 1; got != keep {
				t.Errorf("kept: %t, want %t", got, keep)
			}
			if err := w.send(t, "u2@shop.example", "2", "x"); err != nil {
				t.Errorf("the fault was for another address, and this one got %v", err)
			}
		})
	}
}

func TestAHangEndsWhenTheFaultsAreCleared(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	w.setFaults(t, Fault{Kind: hang, Keep: true})
	sent := make(chan error, 1)
	go func() { sent <- w.send(t, "u1@shop.example", "1", "x") }()
	deadline := time.Now().Add(10 * time.Second)
	for len(w.mails(t, "")) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the mail was not kept")
		}
	}
	select {
	case err := <-sent:
		t.Fatalf("answered while it should hang: %v", err)
	default:
	}
	w.call(t, "DELETE", "/faults", nil, nil)
	if err := <-sent; err == nil {
		t.Error("the hang ended with a good answer")
	}
}

func TestASlowServerAnswersInTheEnd(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	w.setFaults(t, Fault{Kind: slow, DelayMS: 50})
	began := time.Now()
	if err := w.send(t, "u1@shop.example", "1", "x"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("answered after %s", took)
	}
}

func TestUnreadableMailsAreKeptAsTheyCame(t *testing.T) {
	t.Parallel()
	got := parseMail("a@b.example", []string{"c@d.example"}, []byte("no header at all"))
	if got.Text != "no header at all" || got.Size != 16 {
		t.Errorf("got %+v", got)
	}
}

func TestFaultsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	w := start(t, "")
	for _, bad := range []Fault{{}, {Kind: "explode"}, {Kind: refuse, Code: 250}, {Kind: refuse, Stage: "never"}, {Kind: slow, DelayMS: -1}, {Kind: drop, Times: -1}} {
		var problem struct{ Code, Detail string }
		if status := w.call(t, "PUT", "/faults", faultList{[]Fault{bad}}, &problem); status != http.StatusUnprocessableEntity || problem.Code != "invalid" {
			t.Errorf("%+v: status %d, %+v", bad, status, problem)
		}
	}
	var current faultList
	w.call(t, "GET", "/faults", nil, &current)
	if len(current.Faults) != 0 {
		t.Errorf("in force: %+v", current.Faults)
	}
}
