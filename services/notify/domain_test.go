package notify

import (
	"math"
	"net/mail"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMoneyIsWrittenWithItsOwnDecimals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		money Money
		want  string
	}{
		{Money{1990, "CNY", 2}, "CNY 19.90"},
		{Money{1050, "JPY", 0}, "JPY 1050"},
		{Money{1234, "BHD", 3}, "BHD 1.234"},
		{Money{5, "USD", 2}, "USD 0.05"},
		{Money{0, "USD", 2}, "USD 0.00"},
		{Money{10, "CLF", 4}, "CLF 0.0010"},
		{Money{-5, "USD", 2}, "USD -0.05"},
		{Money{math.MaxInt64, "CNY", 2}, "CNY 92233720368547758.07"},
		{Money{math.MinInt64, "CNY", 2}, "CNY -92233720368547758.08"},
	} {
		if got := c.money.String(); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.money, got, c.want)
		}
	}
}

func TestEachOutcomeLeadsToItsState(t *testing.T) {
	t.Parallel()
	p := Policy{MaxAttempts: 3, FirstRetry: time.Second, LastRetry: time.Minute, UnknownRepeats: 1}
	for _, c := range []struct {
		name    string
		task    Task
		outcome Outcome
		want    Step
	}{
		{"accepted", Task{Code: "deferred", Attempts: 2, Unknowns: 1}, Accepted, Step{State: Sent, Attempts: 2, Unknowns: 1}},
		{"put off for the first time", Task{}, Deferred, Step{Queued, "deferred", 1, 0, time.Second}},
		{"put off again", Task{Attempts: 1}, Deferred, Step{Queued, "deferred", 2, 0, 2 * time.Second}},
		{"put off too often", Task{Attempts: 2}, Deferred, Step{Failed, "gave_up", 3, 0, 4 * time.Second}},
		{"rejected", Task{Attempts: 1}, Rejected, Step{Failed, "rejected", 1, 0, 0}},
		{"no server", Task{Attempts: 2, Unknowns: 1}, Unavailable, Step{Queued, "unavailable", 2, 1, 0}},
		{"no answer", Task{Attempts: 1}, Unanswered, Step{Queued, "outcome_unknown", 1, 1, time.Second}},
		{"no answer again", Task{Unknowns: 1}, Unanswered, Step{Unknown, "outcome_unknown", 0, 2, 2 * time.Second}},
		{"no address", Task{}, NoAddress, Step{Failed, "no_contact", 0, 0, 0}},
		{"not tried", Task{Code: "deferred", Attempts: 1}, Released, Step{Queued, "deferred", 1, 0, 0}},
	} {
		if got := p.Next(c.task, c.outcome, 1); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Attempts and the delays between them together bound how long a mail can be
// put off: with the defaults, under two and a half hours.
func TestEveryMailIsOverAfterABoundedTime(t *testing.T) {
	t.Parallel()
	p := DeliveryConfig{}.withDefaults().Policy
	var task Task
	var waited time.Duration
	for attempt := 1; ; attempt++ {
		s := p.Next(task, Deferred, 1)
		if s.State.Over() {
			if attempt != 12 {
				t.Errorf("given up after %d attempts, want 12", attempt)
			}
			break
		}
		waited += s.Delay
		task.Attempts = s.Attempts
	}
	if limit := 150 * time.Minute; waited > limit {
		t.Errorf("waited %s in all, want at most %s", waited, limit)
	}
}

func TestDelaysStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{FirstRetry: time.Second, LastRetry: time.Hour}
		n := rapid.IntRange(1, 1000).Draw(t, "attempt")
		got := p.delay(n, rapid.Float64Range(0, 1).Draw(t, "random"))
		if got < 0 || got > time.Hour {
			t.Fatalf("attempt %d waits %s", n, got)
		}
	})
}

// C76: nor can a name in quotes carry a second address, or words for the server.
func TestAddressesThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		email string
		ok    bool
	}{
		{"jo@mail.example", true},
		{"jo.d+shop@mail.example", true},
		{"o'neil@mail.example", true},
		{long + "@mail.example", true},
		{"jo@localhost", true},
		{"", false},
		{"jo", false},
		{"@mail.example", false},
		{"jo@", false},
		{"jo@mail..example", false},
		{"a@-b.c", false},
		{"a@b-.c", false},
		{"a@b.c-", false},
		{"a@b.-c", false},
		{"a@-", false},
		{"a@b-c.d", true},
		{"a@xn--4gq.example", true},
		{"a@" + strings.Repeat("b", 63) + ".c", true},
		{"a@" + strings.Repeat("b", 64) + ".c", false},
		{".jo@mail.example", false},
		{"jo.@mail.example", false},
		{"j..o@mail.example", false},
		{"jo@mail.example\n", false},
		{"jo@mail.example\r\nBcc: x@mail.example", false},
		{"jo@mail.example, x@mail.example", false},
		{"Jo <jo@mail.example>", false},
		{`"jo"@mail.example`, false},
		{`"jo@elsewhere.example "@mail.example`, false},
		{`"jo@elsewhere.example> ORCPT=x@mail.example"@mail.example`, false},
		{"jo@[127.0.0.1]", false},
		{"jo(x)@mail.example", false},
		{"jö@mail.example", false},
		{"jo@mail.example\x00", false},
		{long + "a@mail.example", false},
		{"jo@" + strings.Repeat("a.", 130) + "example", false},
	} {
		err := Contact{"u1", c.email, English}.check()
		if (err == nil) != c.ok {
			t.Errorf("%q: got %v, want accepted %t", c.email, err, c.ok)
		}
	}
	for _, locale := range []Locale{"", "de", "EN", "zh-CN"} {
		if (Contact{"u1", "jo@mail.example", locale}).check() == nil {
			t.Errorf("locale %q was accepted", locale)
		}
	}
}

// Whatever passes the check is one address to the standard library too, and
// the same one.
// C76: there is no second reading that the mail could go by.
func TestAcceptedAddressesAreOneAddress(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := Contact{"u1", rapid.StringMatching(`[!-~]{1,20}@[!-~]{1,20}`).Draw(t, "email"), English}
		if c.check() != nil {
			return
		}
		address, err := mail.ParseAddress(c.Email)
		if err != nil || address.Address != c.Email || address.Name != "" {
			t.Fatalf("%q is read as %+v, %v", c.Email, address, err)
		}
	})
}

func TestMaskedAddressesAreNotAddresses(t *testing.T) {
	t.Parallel()
	for email, want := range map[string]string{"jo@mail.example": "j***@mail.example", "j@mail.example": "***@mail.example"} {
		if got := (Contact{Email: email}).Masked(); got != want {
			t.Errorf("%s: got %s, want %s", email, got, want)
		}
	}
}
