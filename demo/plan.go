package demo

import (
	"fmt"
	"math/rand/v2"
)

// A fate is what happens to an order after it was placed.
type fate int

const (
	fatePaid        fate = iota // the ordinary case
	fateRefunded                // paid, and paid back in one piece
	fatePartRefunds             // paid, and a part paid back, in two pieces
	fateCancelled               // cancelled by the customer, never paid
	fateRaced                   // cancelled at the moment in which the payment is announced: one of them wins
	fateUnpaid                  // neither: it stays as it is
	fateWrongAmount             // a payment over another amount is announced first, then the right one
)

// fates says how many of a hundred orders have each fate.
var fates = [...]struct {
	fate  fate
	share int
}{
	{fatePaid, 74}, {fateRefunded, 6}, {fatePartRefunds, 6}, {fateCancelled, 5}, {fateRaced, 3}, {fateUnpaid, 3}, {fateWrongAmount, 3},
}

// currencies that customers of the demo pay in.
var currencies = [...]string{"CNY", "USD", "JPY"}

// A plan is one order before anything has been asked of the shop. It follows
// from the seed, the run and the number alone; only the order ids are the
// shop's.
type plan struct {
	run      string
	number   int
	user     string
	currency string
	items    []item
	fate     fate
	rand     *rand.Rand // for what is decided on the way; of this order alone
}

type item struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// newPlan draws the order with this number.
func newPlan(cfg LoadConfig, number int, catalogue []product) plan {
	r := rand.New(rand.NewPCG(cfg.Seed, uint64(number)))
	p := plan{
		run: cfg.Run, number: number, rand: r,
		user:     fmt.Sprintf("u-%04d", 1+r.IntN(cfg.Users)),
		currency: currencies[r.IntN(len(currencies))],
		fate:     drawFate(r),
	}
	for _, i := range r.Perm(len(catalogue)) {
		if len(p.items) == 3 || len(p.items) > 0 && r.IntN(2) == 0 {
			break
		}
		if catalogue[i].soldIn(p.currency) {
			p.items = append(p.items, item{catalogue[i].SKU, 1 + r.IntN(3)})
		}
	}
	return p
}

func drawFate(r *rand.Rand) fate {
	n := r.IntN(100)
	for _, f := range fates {
		if n -= f.share; n < 0 {
			return f.fate
		}
	}
	return fatePaid
}

func (p product) soldIn(currency string) bool {
	for _, price := range p.Prices {
		if price.Currency == currency {
			return true
		}
	}
	return false
}

// key names something of this order, the same in every repetition and
// different from that of every other order and run.
func (p plan) key(what string) string { return fmt.Sprintf("%s-%06d-%s", p.run, p.number, what) }

// callbacks returns what the provider announces about a paid order, in the
// order in which the announcements arrive: copied, some under the same webhook
// id and some under a new one, and shuffled, so that a refund may overtake its
// payment.
func (p plan) callbacks(orderID string, total money) []callback {
	base := callback{op: OpPay, orderID: orderID, paymentID: p.key("pay"), amount: total, at: now()}
	list := p.copies(base, "pay")
	for i, part := range p.refundParts(total.Amount) {
		refund := base
		refund.op, refund.refundID = OpRefund, p.key(fmt.Sprintf("refund%d", i+1))
		refund.amount.Amount = part
		list = append(list, p.copies(refund, fmt.Sprintf("refund%d", i+1))...)
	}
	p.rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// copies returns the callback one to four times.
func (p plan) copies(cb callback, what string) []callback {
	var list []callback
	for i := 0; i == 0 || i < 4 && p.rand.IntN(3) == 0; i++ {
		if i == 0 || p.rand.IntN(2) == 0 {
			cb.webhookID = p.key(fmt.Sprintf("%s-hook%d", what, i+1))
		}
		list = append(list, cb)
	}
	return list
}

func (p plan) refundParts(total int64) []int64 {
	switch {
	case p.fate == fateRefunded || p.fate == fatePartRefunds && total < 4:
		return []int64{total}
	case p.fate == fatePartRefunds:
		first := 1 + p.rand.Int64N(total/2)
		return []int64{first, 1 + p.rand.Int64N(total/2)}
	default:
		return nil
	}
}
