package order

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// What the API shows. A person who answers a customer should understand every
// "says" without knowing how the shop is built.

type moneyView struct {
	Amount    int64  `json:"amount"` // minor units
	Currency  string `json:"currency"`
	Exponent  int    `json:"exponent"`
	Formatted string `json:"formatted"`
}

func newMoneyView(m Money) moneyView {
	places, _ := Exponent(m.Currency)
	return moneyView{m.Amount, m.Currency, places, m.String()}
}

type productView struct {
	SKU    string      `json:"sku"`
	Titles Titles      `json:"titles"`
	Prices []moneyView `json:"prices"`
}

func newProductView(p Product) productView {
	return productView{p.SKU, p.Titles, each(p.Prices, newMoneyView)}
}

type orderView struct {
	OrderID       string          `json:"order_id"`
	UserID        string          `json:"user_id"`
	State         State           `json:"state"`
	Says          string          `json:"says"`
	Version       int64           `json:"version"`
	Items         []lineView      `json:"items"`
	Total         moneyView       `json:"total"`
	Payments      []paymentView   `json:"payments"`
	Refunds       []refundView    `json:"refunds"`
	RefundedTotal moneyView       `json:"refunded_total"`
	Points        int64           `json:"points"` // earned, less what refunds took back
	FollowUps     []followUpView  `json:"follow_ups"`
	Exceptions    []exceptionView `json:"payment_exceptions"`
	History       []entryView     `json:"history"`
	CreatedAt     time.Time       `json:"created_at"`
	PaidAt        time.Time       `json:"paid_at,omitzero"`
	CancelledAt   time.Time       `json:"cancelled_at,omitzero"`
	CancelReason  string          `json:"cancel_reason,omitempty"`
}

type lineView struct {
	SKU      string    `json:"sku"`
	Titles   Titles    `json:"titles"`
	Quantity int64     `json:"quantity"`
	Unit     moneyView `json:"unit_price"`
	Total    moneyView `json:"line_total"`
}

type paymentView struct {
	PaymentID string    `json:"payment_id"`
	Amount    moneyView `json:"amount"`
	At        time.Time `json:"succeeded_at"`
}

type refundView struct {
	RefundID  string    `json:"refund_id"`
	PaymentID string    `json:"payment_id"`
	Amount    moneyView `json:"amount"`
	Points    int64     `json:"points_taken_back"`
	At        time.Time `json:"refunded_at"`
}

type entryView struct {
	Version int64     `json:"version"`
	What    string    `json:"what"`
	Actor   string    `json:"actor"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
}

// newOrderView shows an order as it is at a moment.
func newOrderView(rec record, now time.Time) orderView {
	v := orderView{
		OrderID: rec.ID, UserID: rec.UserID, State: rec.State, Says: rec.says(), Version: rec.Version,
		Items: each(rec.Lines, func(l Line) lineView {
			return lineView{l.SKU, l.Titles, l.Quantity, newMoneyView(l.Unit), newMoneyView(l.Total)}
		}),
		Total:    newMoneyView(rec.Total),
		Payments: []paymentView{},
		Refunds: each(rec.Refunds, func(r Refund) refundView {
			return refundView{r.ID, r.PaymentID, newMoneyView(r.Amount), r.Points, r.At}
		}),
		RefundedTotal: newMoneyView(rec.Refunded()),
		Points:        rec.Points - rec.PointsTakenBack(),
		FollowUps:     each(rec.FollowUps, func(f FollowUp) followUpView { return newFollowUpView(f.At(now)) }),
		Exceptions:    each(rec.Exceptions, newExceptionView),
		History:       each(rec.History, func(e entry) entryView { return entryView(e) }),
		CreatedAt:     rec.CreatedAt, PaidAt: rec.PaidAt, CancelledAt: rec.CancelledAt, CancelReason: rec.CancelReason,
	}
	if rec.State == StatePaid {
		v.Payments = append(v.Payments, paymentView{rec.Payment.ID, newMoneyView(rec.Payment.Amount), rec.Payment.At})
	}
	return v
}

func (o *Order) says() string {
	refunded := o.Refunded()
	switch {
	case o.State == StatePendingPayment:
		return fmt.Sprintf("Waiting for the payment of %s.", o.Total)
	case o.State == StateCancelled:
		return "Cancelled before it was paid."
	case refunded == o.Total:
		return fmt.Sprintf("Paid, %s. All of it was paid back.", o.Total)
	case refunded.Amount > 0:
		return fmt.Sprintf("Paid, %s. Of that, %s were paid back.", o.Total, refunded)
	default:
		return fmt.Sprintf("Paid, %s.", o.Total)
	}
}

type followUpView struct {
	Kind       FollowUpKind  `json:"kind"`
	State      FollowUpState `json:"state"`
	Says       string        `json:"says"`
	Since      time.Time     `json:"since"`
	PromisedBy time.Time     `json:"promised_by"`
	DoneAt     time.Time     `json:"done_at,omitzero"`
	Code       string        `json:"code,omitempty"`
}

func newFollowUpView(f FollowUp) followUpView {
	v := followUpView{f.Kind, f.State, f.says(), f.Since, f.PromisedBy, time.Time{}, f.Code}
	if f.State == FollowUpDone {
		v.DoneAt = f.Since
	}
	return v
}

// says puts a follow-up into words. A failure without words of its own shows
// its code: other services may invent new ones.
func (f FollowUp) says() string {
	thing, done := "The points", "were booked"
	if f.Kind == FollowUpNotification {
		thing, done = "The mail that confirms the payment", "was handed to the customer's mail server"
	}
	switch f.State {
	case FollowUpDone:
		return fmt.Sprintf("%s %s at %s.", thing, done, clock(f.Since))
	case FollowUpFailed:
		return fmt.Sprintf("%s could not be delivered, and nobody is trying any more: %s.", thing, f.why())
	case FollowUpLate:
		return fmt.Sprintf("%s should have come by %s. It is late, not lost: the shop is still working on it.", thing, clock(f.PromisedBy))
	default:
		return fmt.Sprintf("%s will come by %s.", thing, clock(f.PromisedBy))
	}
}

func (f FollowUp) why() string {
	switch f.Code {
	case "no_contact":
		return "no mail address is known"
	case "rejected":
		return "the mail server refused it for good"
	case "gave_up":
		return "the mail server refused it too often"
	case "outcome_unknown":
		return "it may have arrived, but the mail server never said so"
	case "":
		return "the reason is not known"
	default:
		return f.Code
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC on 2 January 2006") }

type exceptionView struct {
	ExceptionID string         `json:"exception_id"` // a string: JavaScript loses digits of large numbers
	State       ExceptionState `json:"state"`
	Reason      Reason         `json:"reason"`
	Says        string         `json:"says"`
	Type        CallbackType   `json:"type"`
	OrderID     string         `json:"order_id"`
	PaymentID   string         `json:"payment_id"`
	RefundID    string         `json:"refund_id,omitempty"`
	Amount      moneyView      `json:"amount"`
	AnnouncedAt time.Time      `json:"announced_at"` // by the provider's clock
	CallbackID  string         `json:"callback_id"`
	Occurrences int64          `json:"occurrences"`
	FirstSeenAt time.Time      `json:"first_seen_at"`
	LastSeenAt  time.Time      `json:"last_seen_at"`
}

func newExceptionView(e Exception) exceptionView {
	return exceptionView{strconv.FormatInt(e.ID, 10), e.State, e.Reason, e.Explanation, e.Kind, e.OrderID, e.PaymentID, e.RefundID,
		newMoneyView(e.Amount), e.ProviderAt, e.CallbackID, e.Occurrences, e.FirstSeenAt, e.LastSeenAt}
}

// each returns what fn makes of every element; never nil, because null is not
// an empty list to a client.
func each[T, V any](in []T, fn func(T) V) []V {
	out := make([]V, len(in))
	for i, t := range in {
		out[i] = fn(t)
	}
	return out
}

// encode is json.Marshal without its escapes for HTML pages, as all other
// answers are written.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
