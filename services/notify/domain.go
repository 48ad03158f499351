package notify

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/strictjson"
)

// A Task is one mail to be sent, or what has become of it.
type Task struct {
	ID       string // also the local part of the Message-ID
	OrderID  string
	UserID   string
	Template Template
	Total    Money
	PaidAt   time.Time

	State    State
	Code     string // why the last attempt did not end in sent
	Reply    string // the mail server's status then; never its text, which quotes addresses
	Attempts int    // that the server put off
	Unknowns int    // that ended without an answer
	DueAt    time.Time

	CreatedAt time.Time
	UpdatedAt time.Time
}

// Template names what a mail says.
type Template string

// OrderPaidTemplate tells a customer that the payment has arrived.
const OrderPaidTemplate Template = "order_paid"

// Channel is how notifications travel.
const Channel = "email"

// State is how far a task is.
type State string

// The states. A task that is over stays as it is, with two exceptions: one
// that failed lately for want of an address, or under the one that there was,
// is queued again when there is another, and one whose late acceptance arrives
// is sent, whatever it was taken for.
const (
	Queued  State = "queued"  // waits for its time
	Sending State = "sending" // a sender holds it until DueAt
	Sent    State = "sent"    // the mail server has it
	Failed  State = "failed"  // given up; Code says why
	Unknown State = "unknown" // it may have been delivered; a person decides
)

// Over reports whether nothing more will be tried.
func (s State) Over() bool { return s == Sent || s == Failed || s == Unknown }

// Outcome is how an attempt to send ended.
type Outcome string

// The outcomes.
const (
	Accepted    Outcome = "accepted"    // the server took the mail
	Deferred    Outcome = "deferred"    // the server did not take it now (4xx), or the connection broke before the last byte
	Rejected    Outcome = "rejected"    // the server will never take it (5xx)
	Unavailable Outcome = "unavailable" // there is no working server; nothing is said about the mail
	Unanswered  Outcome = "unanswered"  // all of it was sent and no answer came: it may have been delivered
	NoAddress   Outcome = "no_address"  // nobody knows where to send it
	Released    Outcome = "released"    // nothing was tried
)

// The codes of tasks that are over. They are part of the contract of
// NotificationFailed.
const (
	codeNoContact      = "no_contact"
	codeRejected       = "rejected"
	codeGaveUp         = "gave_up"
	codeOutcomeUnknown = "outcome_unknown"
)

// A Policy bounds what is done for one mail.
type Policy struct {
	// MaxAttempts is how often the server may put a mail off. With the delays
	// below, 12 attempts are spread over at most two and a half hours; time in
	// which there is no server is not counted.
	MaxAttempts int

	// FirstRetry and LastRetry bound the delay between attempts: it doubles
	// from the one to the other, with full jitter.
	FirstRetry, LastRetry time.Duration

	// UnknownRepeats is how often a mail is sent again that may have been
	// delivered, with the same Message-ID. A customer gets it at most
	// UnknownRepeats + 1 times. Zero prefers no mail to two.
	UnknownRepeats int
}

// A Step is what an attempt makes of a task.
type Step struct {
	State    State
	Code     string
	Attempts int
	Unknowns int
	Delay    time.Duration // of a queued task
}

// Next decides what becomes of a task after an attempt. random is between 0
// and 1.
func (p Policy) Next(t Task, o Outcome, random float64) Step {
	s := Step{State: Failed, Attempts: t.Attempts, Unknowns: t.Unknowns}
	switch o {
	case Accepted:
		s.State = Sent
	case NoAddress:
		s.Code = codeNoContact
	case Rejected:
		s.Code = codeRejected
	case Released:
		s.State, s.Code = Queued, t.Code
	case Unavailable: // not this mail's fault: its budget stands still
		s.State, s.Code = Queued, string(Unavailable)
	case Unanswered:
		s.Unknowns++
		s.State, s.Code, s.Delay = Queued, codeOutcomeUnknown, p.delay(s.Unknowns, random)
		if s.Unknowns > p.UnknownRepeats {
			s.State = Unknown
		}
	default: // Deferred
		s.Attempts++
		s.State, s.Code, s.Delay = Queued, string(Deferred), p.delay(s.Attempts, random)
		if s.Attempts >= p.MaxAttempts {
			s.State, s.Code = Failed, codeGaveUp
		}
	}
	return s
}

func (p Policy) delay(n int, random float64) time.Duration {
	longest := p.LastRetry
	if n <= 30 { // beyond that the shift would overflow
		longest = min(longest, p.FirstRetry<<(n-1))
	}
	return time.Duration(random * float64(longest))
}

// Money is an exact amount with all that is needed to write it down.
type Money struct {
	Amount   int64  // minor units
	Currency string // ISO 4217
	Exponent int    // digits behind the decimal point
}

// String writes the amount with its decimals, by digits and never by division
// of floats: CNY 19.90, JPY 1050.
func (m Money) String() string {
	digits := strconv.FormatInt(m.Amount, 10)
	sign := ""
	if m.Amount < 0 {
		sign, digits = "-", digits[1:]
	}
	if missing := m.Exponent + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) - m.Exponent
	if m.Exponent > 0 {
		digits = digits[:point] + "." + digits[point:]
	}
	return m.Currency + " " + sign + digits
}

// A Contact is where a user wants mail, and in which language.
type Contact struct {
	UserID string
	Email  string
	Locale Locale
}

// Locale is a language that mails can be written in.
type Locale string

// The languages.
const (
	English  Locale = "en"
	Chinese  Locale = "zh"
	Japanese Locale = "ja"
)

// What SMTP can carry. https://www.rfc-editor.org/errata/eid1690
const (
	maxEmail     = 254
	maxLocalPart = 64
)

// domainLabel neither begins nor ends with a hyphen, as no name in the DNS does.
const domainLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

// A plain address: words of ASCII joined by single dots, one @, a domain. No
// quotes, comments or spaces, so nothing that could end a header line or begin
// another recipient.
var emailPattern = regexp.MustCompile("^([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+\\.)*[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+@(" + domainLabel + "\\.)*" + domainLabel + "$")

// check refuses a contact that no mail could be sent to.
func (c Contact) check() error {
	switch {
	case len(c.Email) > maxEmail || strings.IndexByte(c.Email, '@') > maxLocalPart || !emailPattern.MatchString(c.Email):
		return &flaw{"bad_email", "email must be a plain ASCII address of at most 254 bytes, such as jo@mail.example"}
	case c.Locale != English && c.Locale != Chinese && c.Locale != Japanese:
		return &flaw{"bad_locale", "locale is en, zh or ja"}
	}
	return nil
}

// Masked returns the address as it may be shown: enough to recognise one's
// own, not enough to write to somebody else's.
func (c Contact) Masked() string {
	local, domain, _ := strings.Cut(c.Email, "@")
	if len(local) > 1 {
		return local[:1] + "***@" + domain
	}
	return "***@" + domain
}

var (
	idPattern       = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)
)

// maxExponent is that of the currency with the most decimals.
const maxExponent = 4

// plan returns the task that a paid order asks for. Its errors are flaws: the
// event contradicts its contract, and will again.
func plan(paid OrderPaid) (Task, error) {
	t := Task{OrderID: paid.OrderID, UserID: paid.UserID, Template: OrderPaidTemplate, PaidAt: paid.PaidAt}
	switch {
	case !idPattern.MatchString(paid.OrderID):
		return t, &flaw{"bad_order_id", "order_id has not 1 to 64 letters, digits, '-' and '_'"}
	case !idPattern.MatchString(paid.UserID):
		return t, &flaw{"bad_user_id", "user_id has not 1 to 64 letters, digits, '-' and '_'"}
	case paid.Total.Amount == nil || *paid.Total.Amount < 0:
		return t, &flaw{"bad_total", "total.amount is missing or negative"}
	case !currencyPattern.MatchString(paid.Total.Currency):
		return t, &flaw{"bad_total", "total.currency is not three capital letters"}
	case paid.Total.Exponent == nil || *paid.Total.Exponent < 0 || *paid.Total.Exponent > maxExponent:
		return t, &flaw{"bad_total", fmt.Sprintf("total.exponent is missing or not from 0 to %d", maxExponent)}
	case !strictjson.Storable(paid.PaidAt):
		return t, &flaw{"bad_paid_at", "paid_at is missing or not of this era"}
	}
	t.Total = Money{*paid.Total.Amount, paid.Total.Currency, *paid.Total.Exponent}
	return t, nil
}

// taskPrefix begins every task's id.
const taskPrefix = "ntf_"

// taskID returns the id that a task gets from a UUIDv7.
func taskID(id uuid.UUID) string { return taskPrefix + strings.ReplaceAll(id.String(), "-", "") }

// A flaw is what is wrong with an event or a request, in a form that can be
// counted (code) and read (text). Neither repeats what was sent.
type flaw struct{ code, text string }

func (f *flaw) Error() string { return f.text }
