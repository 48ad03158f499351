package notify

import (
	"net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	"orderpaid/demo/sim"
)

// received sends a mail through a real server and returns what a reader sees.
func received(t *testing.T, task Task, to Contact) sim.Mail {
	t.Helper()
	server := startMailServer(t, "127.0.0.1:0")
	msg, err := compose(task, to, "orders@shop.example", task.ID+"@shop.example")
	if err != nil {
		t.Fatal(err)
	}
	if got := newTestMailer(t, MailerConfig{Addr: server.smtpAddr}).Send(t.Context(), msg); got.Outcome != Accepted {
		t.Fatalf("got %+v", got)
	}
	return server.mails(t, "")[0]
}

// C121: whoever is on holiday does not answer, whatever his mail server goes by.
func TestEachLanguageSaysWhatWasPaid(t *testing.T) {
	t.Parallel()
	order := newOrder()
	task := Task{
		ID: "ntf_1", OrderID: order, Template: OrderPaidTemplate, Total: Money{1050, "JPY", 0},
		PaidAt: time.Date(2026, 10, 3, 2, 0, 41, 0, time.UTC), CreatedAt: time.Date(2026, 10, 3, 2, 0, 42, 5, time.UTC),
	}
	for locale, words := range map[Locale][2]string{
		English:  {"We have received your payment for order " + order, "Paid:     JPY 1050\n"},
		Chinese:  {"我们已收到您的付款（订单 " + order + "）", "金额：JPY 1050\n"},
		Japanese: {"お支払いを確認しました（ご注文 " + order + "）", "お支払い金額：JPY 1050\n"},
	} {
		t.Run(string(locale), func(t *testing.T) {
			t.Parallel()
			got := received(t, task, Contact{"u1", "jo@mail.example", locale})
			if got.Subject != words[0] || !strings.Contains(got.Text, words[1]) ||
				!strings.Contains(got.Text, order) || !strings.Contains(got.Text, "2026-10-03 02:00 UTC") {
				t.Errorf("got subject %q and text %q", got.Subject, got.Text)
			}
			if !slices.Equal(got.Orders, []string{order}) || !slices.Equal(got.To, []string{"jo@mail.example"}) {
				t.Errorf("got %+v", got)
			}
			header := mail.Header(got.Header)
			for name, want := range map[string]string{
				"Message-Id": "<ntf_1@shop.example>", "Date": "Sat, 03 Oct 2026 02:00:42 +0000", "Auto-Submitted": "auto-generated",
				"X-Auto-Response-Suppress": "OOF, AutoReply", "Content-Language": string(locale), "To": "<jo@mail.example>", "From": "<orders@shop.example>",
			} {
				if header.Get(name) != want {
					t.Errorf("%s: got %q, want %q", name, header.Get(name), want)
				}
			}
		})
	}
}

// C58: the ids of a task are checked when it is planned. Should one get past that,
// it still cannot become a header or another recipient.
func TestNothingInAMailCanBecomeAHeader(t *testing.T) {
	t.Parallel()
	task := Task{ID: "ntf_1", OrderID: "x\r\nBcc: thief@mail.example\r\n\r\nhello", Total: Money{1, "CNY\r\nX-Evil: 1", 2}, CreatedAt: time.Now()}
	got := received(t, task, Contact{"u1", "jo@mail.example", English})
	if len(got.To) != 1 || got.Header["Bcc"] != nil || got.Header["X-Evil"] != nil {
		t.Errorf("got recipients %v and header %v", got.To, got.Header)
	}
	if _, err := compose(task, Contact{"u1", "jo@mail.example\r\nBcc: thief@mail.example", English}, "orders@shop.example", "1"); err == nil {
		t.Error("an address with a line break was accepted")
	} else if strings.Contains(err.Error(), "@") {
		t.Errorf("the error quotes the address: %v", err)
	}
}
