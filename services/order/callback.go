package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"orderpaid/platform/faults"
	"orderpaid/platform/httpserver"
	"orderpaid/platform/postgres"
	"orderpaid/platform/strictjson"
)

// A Callback is what the payment provider announces. Its signature has been
// verified and its form checked: who says it is known, whether it can be true
// is not.
type Callback struct {
	ID        string // the provider's; a repetition has the same
	Type      CallbackType
	OrderID   string // as the provider names it: not necessarily an order of ours
	PaymentID string
	RefundID  string // of a refund only
	Amount    Money
	At        time.Time // by the provider's clock; of an unknown type, when it was received unless it says so
	Body      []byte    // as received
	Said      []byte    // of an unknown type, the hash of what it says: it tells two of them apart
}

// CallbackType says what has happened.
type CallbackType string

// The types that this service acts on. Any other is kept for a person: it may
// be about money too.
const (
	PaymentSucceeded CallbackType = "payment.succeeded"
	PaymentRefunded  CallbackType = "payment.refunded"
	PaymentFailed    CallbackType = "payment.failed"
)

// An Outcome is what was made of a callback.
type Outcome struct {
	Result Result
	Reason Reason // for held and kept
}

// Result is the short form of an outcome.
type Result string

// The results. Held and kept mean: not applied.
const (
	ResultApplied        Result = "applied"         // the order has changed
	ResultAlreadyApplied Result = "already_applied" // the same fact was known, by another callback
	ResultNoted          Result = "noted"           // it changes nothing, and is part of the order's history
	ResultHeld           Result = "held"            // a refund that waits for its payment, which will apply it
	ResultKept           Result = "kept"            // refused by the rules: a person has to look
)

// ApplyCallback makes of a callback what the rules allow, in one transaction:
// the callback is recorded, the order's row is locked, its state machine
// decides, and the change commits together with its event.
//
// What the rules refuse is not an error. It is kept in payment_exception and
// the outcome says why; an error means that nothing was kept, and that the
// provider should send the callback again.
func (s *Service) ApplyCallback(ctx context.Context, cb Callback) (out Outcome, err error) {
	at := now()
	if !cb.known() && !strictjson.Storable(cb.At) {
		cb.At = at
	}
	err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		known, same, err := recordCallback(ctx, tx, cb, at)
		switch {
		case err != nil:
			return err
		case known != nil && !same:
			out, err = keep(ctx, tx, cb, refuse(ReasonCallbackReused, "callback %s was received before and said something else", cb.ID), at)
			return err
		case known != nil && known.Result != ResultHeld: // what was held may have been applied since
			out = *known
			return nil
		}
		out, err = s.apply(ctx, tx, cb, at)
		var why *Refusal
		if errors.As(err, &why) {
			out, err = keep(ctx, tx, cb, why, at)
		}
		if err != nil {
			return err
		}
		if err := settleCallback(ctx, tx, cb.ID, out); err != nil {
			return err
		}
		faults.Hit("order.before_commit")
		return nil
	})
	faults.Hit("order.after_commit")
	if err != nil {
		return Outcome{}, fmt.Errorf("apply callback %s: %w", cb.ID, err)
	}
	s.report(ctx, cb, out)
	return out, nil
}

// apply returns a *Refusal, and has written nothing then, if the rules say no.
func (s *Service) apply(ctx context.Context, tx pgx.Tx, cb Callback, at time.Time) (Outcome, error) {
	if !cb.known() { // before its order is looked for: it need not be about one
		return Outcome{}, refuse(ReasonUnknownType, "%q is not a type of callback that can be applied", cb.Type)
	}
	o, err := lockOrder(ctx, tx, cb.OrderID)
	if errors.Is(err, errNoOrder) {
		return Outcome{}, refuse(ReasonUnknownOrder, "there is no order with this id")
	}
	if err != nil {
		return Outcome{}, err
	}
	switch cb.Type {
	case PaymentSucceeded:
		err = s.pay(ctx, tx, o, Payment{cb.PaymentID, cb.Amount, cb.At}, at)
	case PaymentRefunded:
		err = s.refund(ctx, tx, &o, Refund{ID: cb.RefundID, PaymentID: cb.PaymentID, Amount: cb.Amount, At: cb.At}, at)
	case PaymentFailed:
		if err := o.PaymentFailed(cb.PaymentID); err != nil {
			return Outcome{}, err
		}
		note := fmt.Sprintf("payment %s of %s did not succeed", cb.PaymentID, cb.Amount)
		return Outcome{Result: ResultNoted}, noteFailure(ctx, tx, o, note, at)
	}
	if errors.Is(err, ErrAlreadyApplied) {
		return Outcome{Result: ResultAlreadyApplied}, nil
	}
	return Outcome{Result: ResultApplied}, err
}

// pay moves the order to PAID and notes what the customer was promised by it.
func (s *Service) pay(ctx context.Context, tx pgx.Tx, o Order, p Payment, at time.Time) error {
	if err := o.Pay(p, s.cfg.Rule, at); err != nil {
		return err
	}
	added, err := insertPayment(ctx, tx, o.ID, p, at)
	if err != nil {
		return err
	}
	if !added {
		return refuse(ReasonPaymentElsewhere, "payment %s has paid another order", p.ID)
	}
	note := fmt.Sprintf("%s by payment %s, which earn %d points", p.Amount, p.ID, o.Points)
	promised := insertFollowUps(o.ID, o.FollowUps(s.cfg.Promises))
	if err := saveOrder(ctx, tx, o, entry{o.Version, "paid", actorProvider, note, at}, promised); err != nil {
		return err
	}
	if err := s.outbox.Add(ctx, tx, o.paid()); err != nil {
		return err
	}
	return s.releaseHeld(ctx, tx, &o, at)
}

// releaseHeld ends the waiting of the refunds that were announced before the
// order's payment, now that the order is paid, or never will be. One that the
// rules refuse becomes an open exception, as does one that a person had settled
// without knowing of this payment; neither must undo the payment.
func (s *Service) releaseHeld(ctx context.Context, tx pgx.Tx, o *Order, at time.Time) error {
	held, err := heldRefunds(ctx, tx, o.ID)
	if err != nil {
		return err
	}
	for _, h := range held {
		if h.settled && h.refund.PaymentID != o.Payment.ID {
			continue // as the person thought: its payment has not come
		}
		var why *Refusal
		if h.settled {
			why = refuse(ReasonRefundSettled, "payment %s was announced after a person had settled its refund", h.refund.PaymentID)
		} else if err := s.refund(ctx, tx, o, h.refund, at); err != nil && !errors.As(err, &why) {
			return err
		}
		if err := settleHeld(ctx, tx, h, why); err != nil {
			return err
		}
	}
	return nil
}

// refund gives back a part of the payment. Each refund is a change of its own,
// with a version and an event of its own.
func (s *Service) refund(ctx context.Context, tx pgx.Tx, o *Order, r Refund, at time.Time) error {
	r, err := o.Refund(r)
	if err != nil {
		return err
	}
	if err := insertRefund(ctx, tx, o.ID, r, at); err != nil {
		return err
	}
	note := fmt.Sprintf("%s by refund %s, which take back %d points", r.Amount, r.ID, r.Points)
	if err := saveOrder(ctx, tx, *o, entry{o.Version, "refunded", actorProvider, note, at}); err != nil {
		return err
	}
	return s.outbox.Add(ctx, tx, o.refunded(r, at))
}

// keep makes an exception of a callback that was refused.
func keep(ctx context.Context, tx pgx.Tx, cb Callback, why *Refusal, at time.Time) (Outcome, error) {
	out, state := Outcome{ResultKept, why.Reason}, ExceptionOpen
	if why.Reason == ReasonRefundBeforePayment {
		out.Result, state = ResultHeld, ExceptionHeld
	}
	return out, keepException(ctx, tx, cb, state, why, at)
}

// report counts what became of callbacks and warns of those that wait for a
// person. Ids of orders and payments say nothing about a customer.
func (s *Service) report(ctx context.Context, cb Callback, out Outcome) {
	s.callbacks.Add(ctx, 1, metric.WithAttributes(
		attribute.String("result", string(out.Result)), attribute.String("reason", string(out.Reason))))
	if out.Result == ResultKept {
		slog.WarnContext(ctx, "payment callback kept for a person", "reason", out.Reason, "callback_id", cb.ID)
	}
}

// reportRefused tells operators of a callback that was turned away. A stranger
// who tries is one line; a key that was rotated wrongly, a clock that is off or
// a provider that has changed its format refuses every payment, and must not do
// so in silence.
func (s *Service) reportRefused(ctx context.Context, callbackID string, err error) {
	code := "unreadable"
	var problem *httpserver.Error
	if errors.As(err, &problem) {
		code = problem.Code
	}
	s.callbacks.Add(ctx, 1, metric.WithAttributes(attribute.String("result", "refused"), attribute.String("reason", code)))
	slog.WarnContext(ctx, "a payment callback was refused", "callback_id", callbackID, "code", code)
}
