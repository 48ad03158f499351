package order

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// State is where an order is in its life.
type State string

// The states. There is no "refunded": an order that was paid stays paid, and
// its refunds say how much of that was given back.
const (
	StatePendingPayment State = "PENDING_PAYMENT"
	StatePaid           State = "PAID"
	StateCancelled      State = "CANCELLED"
)

// Limits of an order. Together with the lengths of titles they keep its event
// under the size that the outbox accepts.
const (
	MaxLines    = 200
	MaxQuantity = 10_000
)

// An Order and everything that its rules look at. The zero value is not an
// order; [Place] makes one.
type Order struct {
	ID      string
	UserID  string
	State   State
	Version int64 // 1 when placed, then one more for each change
	Lines   []Line
	Total   Money

	Payment Payment // zero until paid
	Points  int64   // earned by the payment; fixed when it was made
	Refunds []Refund

	CreatedAt    time.Time
	PaidAt       time.Time
	CancelledAt  time.Time
	CancelReason string
}

// A Line is one product of an order, as it was when the order was placed.
type Line struct {
	SKU      string
	Titles   Titles
	Quantity int64
	Unit     Money
	Total    Money
}

// Titles is a product's title by language.
type Titles struct {
	EN string `json:"en"`
	ZH string `json:"zh"`
	JA string `json:"ja"`
}

// A Payment is money that the provider says it has received.
type Payment struct {
	ID     string // the provider's
	Amount Money
	At     time.Time // by the provider's clock
}

// A Refund is money that the provider says it has paid back.
type Refund struct {
	ID        string // the provider's
	PaymentID string
	Amount    Money
	Points    int64 // taken back by this refund; set when it is accepted
	At        time.Time
}

// Place returns a new order in PENDING_PAYMENT. The lines need SKU, Titles,
// Quantity and Unit; their totals and the order's are computed here.
func Place(id, userID, currency string, lines []Line, at time.Time) (Order, error) {
	o := Order{ID: id, UserID: userID, State: StatePendingPayment, Version: 1, Lines: lines,
		Total: Money{Currency: currency}, CreatedAt: at}
	for i := range o.Lines {
		l := &o.Lines[i]
		var err error
		if l.Total, err = l.Unit.Times(l.Quantity); err == nil {
			o.Total, err = o.Total.Add(l.Total)
		}
		if err != nil {
			return Order{}, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return o, nil
}

// ErrAlreadyApplied: the order already is what was asked for. Nothing is
// wrong, nothing is to be done.
var ErrAlreadyApplied = errors.New("already applied")

// A Refusal is a rule's no. Callers decide by the reason; people read the
// explanation.
type Refusal struct {
	Reason      Reason
	Explanation string
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Explanation }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// Reason is the stable code of a refusal.
type Reason string

// Why a rule said no.
const (
	ReasonUnknownOrder        Reason = "unknown_order"
	ReasonUnknownType         Reason = "unknown_callback_type"
	ReasonCallbackReused      Reason = "callback_id_reused"
	ReasonOrderCancelled      Reason = "order_cancelled"
	ReasonOrderPaid           Reason = "order_paid"
	ReasonAmount              Reason = "amount_mismatch"
	ReasonCurrency            Reason = "currency_mismatch"
	ReasonSecondPayment       Reason = "second_payment"
	ReasonPaymentElsewhere    Reason = "payment_of_another_order"
	ReasonFailedAfterPaid     Reason = "failed_after_paid"
	ReasonRefundBeforePayment Reason = "refund_before_payment" // the only one that mends itself
	ReasonRefundElsewhere     Reason = "refund_of_another_payment"
	ReasonRefundChanged       Reason = "refund_changed"
	ReasonRefundTooLarge      Reason = "refund_above_paid"
	ReasonRefundSettled       Reason = "refund_settled_before_payment"
)

// Pay moves the order to PAID and fixes the points that it earns. A payment
// that the order has already is [ErrAlreadyApplied].
func (o *Order) Pay(p Payment, rule PointsRule, at time.Time) error {
	switch {
	case p.Amount.Currency != o.Total.Currency:
		return refuse(ReasonCurrency, "the order is in %s and the payment in %s", o.Total.Currency, p.Amount.Currency)
	case p.Amount != o.Total:
		return refuse(ReasonAmount, "the order's total is %s and the payment's %s", o.Total, p.Amount)
	case o.State == StatePaid && o.Payment.ID == p.ID:
		return ErrAlreadyApplied
	case o.State == StatePaid:
		return refuse(ReasonSecondPayment, "the order is paid already, by payment %s", o.Payment.ID)
	case o.State == StateCancelled:
		return refuse(ReasonOrderCancelled, "the order was cancelled before it was paid")
	}
	o.State, o.Payment, o.PaidAt, o.Points = StatePaid, p, at, rule.Points(p.Amount)
	o.Version++
	return nil
}

// PaymentFailed checks an announced failure. It changes nothing: the customer
// may try again.
func (o *Order) PaymentFailed(paymentID string) error {
	if o.State == StatePaid && o.Payment.ID == paymentID {
		return refuse(ReasonFailedAfterPaid, "the payment was announced as succeeded before, and as failed now")
	}
	return nil
}

// Refund gives back a part of the payment, or all of it, and returns the
// refund with the points that it takes back. A refund that the order has
// already is [ErrAlreadyApplied].
func (o *Order) Refund(r Refund) (Refund, error) {
	switch {
	case o.State == StateCancelled:
		return r, refuse(ReasonOrderCancelled, "the order was cancelled and has no payment to refund")
	case o.State == StatePendingPayment:
		return r, refuse(ReasonRefundBeforePayment, "payment %s has not been announced yet", r.PaymentID)
	case r.PaymentID != o.Payment.ID:
		return r, refuse(ReasonRefundElsewhere, "the order was paid by payment %s, not by %s", o.Payment.ID, r.PaymentID)
	case r.Amount.Currency != o.Total.Currency:
		return r, refuse(ReasonCurrency, "the payment was in %s and the refund in %s", o.Total.Currency, r.Amount.Currency)
	}
	for _, known := range o.Refunds {
		if known.ID == r.ID && known.Amount == r.Amount {
			return known, ErrAlreadyApplied
		}
		if known.ID == r.ID {
			return r, refuse(ReasonRefundChanged, "refund %s was %s when it was announced first, and is %s now", r.ID, known.Amount, r.Amount)
		}
	}
	before := o.Refunded()
	if r.Amount.Amount > o.Total.Amount-before.Amount {
		return r, refuse(ReasonRefundTooLarge, "%s were paid and %s refunded already, so %s is too much", o.Total, before, r.Amount)
	}
	after := Money{before.Amount + r.Amount.Amount, before.Currency}
	r.Points = o.pointsFor(after) - o.pointsFor(before)
	o.Refunds = append(o.Refunds, r)
	o.Version++
	return r, nil
}

// Refunded returns what all refunds so far have given back.
func (o *Order) Refunded() Money {
	sum := Money{0, o.Total.Currency}
	for _, r := range o.Refunds {
		sum.Amount += r.Amount.Amount // cannot overflow: Refund keeps the sum within the total
	}
	return sum
}

// PointsTakenBack returns the points of all refunds so far.
func (o *Order) PointsTakenBack() int64 { return o.pointsFor(o.Refunded()) }

// pointsFor returns the points that belong to the first part of the payment,
// rounded down. Each refund takes the difference between two such values, so
// the roundings cancel out: after a full refund, whatever its parts, exactly
// the earned points are gone.
func (o *Order) pointsFor(part Money) int64 {
	high, low := bits.Mul64(uint64(o.Points), uint64(part.Amount))
	points, _ := bits.Div64(high, low, uint64(o.Total.Amount)) // part ≤ total, so the quotient fits
	return int64(points)
}

// Cancel gives the order up. One that is cancelled already is
// [ErrAlreadyApplied]; one that is paid stays paid.
func (o *Order) Cancel(reason string, at time.Time) error {
	switch o.State {
	case StateCancelled:
		return ErrAlreadyApplied
	case StatePaid:
		return refuse(ReasonOrderPaid, "the order is paid; only a refund can undo that")
	}
	o.State, o.CancelReason, o.CancelledAt = StateCancelled, reason, at
	o.Version++
	return nil
}

// A FollowUp is something that the customer was promised with the payment and
// that another service does.
type FollowUp struct {
	Kind       FollowUpKind
	State      FollowUpState
	Since      time.Time // when the state began
	PromisedBy time.Time
	Code       string // why it failed
}

// FollowUpKind says what was promised.
type FollowUpKind string

// What a payment promises.
const (
	FollowUpPoints       FollowUpKind = "points"
	FollowUpNotification FollowUpKind = "notification"
)

// FollowUpState says how far it is.
type FollowUpState string

// The states of a follow-up. Late is never stored: time alone brings it about.
const (
	FollowUpPending FollowUpState = "pending"
	FollowUpLate    FollowUpState = "late"
	FollowUpFailed  FollowUpState = "failed"
	FollowUpDone    FollowUpState = "done"
)

// Promises says how long after the payment each follow-up may take.
type Promises struct{ Points, Notification time.Duration }

// FollowUps returns what a payment that was just made promises. Points are
// awaited even if the payment earned none: their service answers for zero too.
func (o *Order) FollowUps(p Promises) []FollowUp {
	pending := func(kind FollowUpKind, within time.Duration) FollowUp {
		return FollowUp{Kind: kind, State: FollowUpPending, Since: o.PaidAt, PromisedBy: o.PaidAt.Add(within)}
	}
	return []FollowUp{pending(FollowUpPoints, p.Points), pending(FollowUpNotification, p.Notification)}
}

// At returns the follow-up as it looks at a moment: one that is pending after
// its promised time is late since then.
func (f FollowUp) At(now time.Time) FollowUp {
	if f.State == FollowUpPending && now.After(f.PromisedBy) {
		f.State, f.Since = FollowUpLate, f.PromisedBy
	}
	return f
}
