package order

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/postgres"
)

// What a person does about a payment exception: look, mend outside of the shop
// what is to be mended (pay back, ask the provider), and settle it with a
// reason. Settling moves no money and changes no order.

var (
	errNoException = errors.New("there is no payment exception with this id")
	errNotWaiting  = errors.New("the payment exception does not wait for anybody")
)

// PaymentExceptions returns up to limit announcements of the provider that
// wait for somebody, oldest first, behind the id after.
func (s *Service) PaymentExceptions(ctx context.Context, after int64, limit int) ([]Exception, error) {
	return waitingExceptions(ctx, s.pool, after, limit)
}

// exceptionStates are the words by which operators choose.
var exceptionStates = map[string][]ExceptionState{
	"waiting": {ExceptionOpen, ExceptionHeld},
	"":        {ExceptionOpen, ExceptionHeld, ExceptionApplied, ExceptionSettled},
}

func (s *Service) listExceptions(ctx context.Context, f opsapi.ExceptionFilter) ([]opsapi.Exception, error) {
	states, known := exceptionStates[f.State]
	if !known {
		states = []ExceptionState{ExceptionState(f.State)}
	}
	list, err := exceptionsBy(ctx, s.pool, states, f.Key, f.After, f.Limit)
	return each(list, newOpsException), err
}

func newOpsException(e Exception) opsapi.Exception {
	v := opsapi.Exception{ExceptionID: e.ID, State: string(e.State), Reason: string(e.Reason), Says: e.Explanation, Kind: string(e.Kind),
		Key: e.OrderID, About: map[string]string{"payment_id": e.PaymentID, "amount": e.Amount.String(), "callback_id": e.CallbackID},
		Occurrences: e.Occurrences, FirstSeenAt: e.FirstSeenAt, LastSeenAt: e.LastSeenAt, SettledAt: e.SettledAt}
	if e.RefundID != "" {
		v.About["refund_id"] = e.RefundID
	}
	return v
}

// showException returns one with the body that the provider sent, nil once that
// is erased.
func (s *Service) showException(ctx context.Context, id int64) (opsapi.Exception, []byte, error) {
	e, body, err := findException(ctx, s.pool, id)
	if errors.Is(err, errNoException) {
		err = opsapi.ErrNoException
	}
	return newOpsException(e), body, err
}

// settleExceptions settles what of the ids still waits, in one transaction with
// the record of who did it and why. It returns how many that were: what another
// person, or a payment, has ended meanwhile is left as it is.
//
// A held refund can be settled too. Should its payment be announced after all,
// it is opened again: the decision did not know of it.
func (s *Service) settleExceptions(ctx context.Context, ids []int64, who messaging.Actor) (settled int, err error) {
	ids = slices.Clone(ids)
	slices.Sort(ids) // always in this order: two people with the same list must not wait for each other
	err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		settled = 0
		for _, id := range slices.Compact(ids) {
			was, reason, err := settleException(ctx, tx, id)
			if errors.Is(err, errNotWaiting) {
				continue
			}
			if err != nil {
				return err
			}
			settled++
			if err := messaging.RecordAction(ctx, tx, who, "settle", opsapi.ExceptionTarget(id),
				map[string]any{"state": was, "reason": reason}, map[string]any{"state": ExceptionSettled}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("settle %s: %w", strconv.Itoa(len(ids))+" payment exceptions", err)
	}
	return settled, nil
}
