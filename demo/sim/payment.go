package sim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Money is an exact amount in minor units of an ISO 4217 currency.
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Exponent int    `json:"exponent"` // digits behind the decimal point
}

// A Payment is what the provider knows of one payment, or of one refund.
type Payment struct {
	PaymentID string     `json:"payment_id"`
	RefundID  string     `json:"refund_id,omitempty"` // set if this is a refund
	OrderID   string     `json:"order_id"`
	Money                // paid, or paid back
	Failed    bool       `json:"failed,omitempty"` // the customer tried, and the money did not move
	CreatedAt time.Time  `json:"created_at"`
	Callbacks []Callback `json:"callbacks"`
}

// A Callback is one announcement with all its attempts.
type Callback struct {
	WebhookID string `json:"webhook_id"`
	Attempts  int    `json:"attempts"`
	Status    int    `json:"status"`  // of the last answer; 0: none came
	Done      bool   `json:"done"`    // answered with 2xx
	GaveUp    bool   `json:"gave_up"` // no attempt will follow
}

// maxPayments bounds what is remembered, about 500 bytes each.
const maxPayments = 50_000

var errNoPayment = errors.New("there is no such payment")

// A provider takes payments and announces them to the shop. All it knows is
// in memory: a restart forgets the callbacks that were not answered, as a
// provider does that has given up.
type provider struct {
	url    string
	signer signer
	queue  chan job // from those who ask for a callback to run, which makes it

	mu       sync.Mutex // guards payments and everything they point to
	payments []*Payment // oldest first
}

func newProvider(url string, s signer) *provider {
	return &provider{url: url, signer: s, queue: make(chan job)}
}

// pay records that a customer has paid, or tried to, and announces
// payment.succeeded or payment.failed.
func (p *provider) pay(ctx context.Context, orderID string, paid Money, failed bool, how Announcement) (Payment, error) {
	payment := &Payment{PaymentID: newID("pay_"), OrderID: orderID, Money: paid, Failed: failed, CreatedAt: time.Now().UTC()}
	return p.record(ctx, payment, how)
}

// refund records that a part of a payment was paid back, and announces
// payment.refunded. It does not ask how much is left.
func (p *provider) refund(ctx context.Context, paymentID string, amount int64, how Announcement) (Payment, error) {
	paid, err := p.find(paymentID)
	if err != nil {
		return Payment{}, err
	}
	refund := &Payment{
		PaymentID: paymentID, RefundID: newID("re_"), OrderID: paid.OrderID,
		Money: paid.Money, CreatedAt: time.Now().UTC(),
	}
	refund.Amount = amount
	return p.record(ctx, refund, how)
}

func (p *provider) record(ctx context.Context, payment *Payment, how Announcement) (Payment, error) {
	p.mu.Lock()
	if len(p.payments) == maxPayments {
		p.payments = p.payments[1:]
	}
	p.payments = append(p.payments, payment)
	p.mu.Unlock()
	return p.announce(ctx, payment, how)
}

// again announces a payment, or a refund, that is known already.
func (p *provider) again(ctx context.Context, id string, how Announcement) (Payment, error) {
	payment, err := p.find(id)
	if err != nil {
		return Payment{}, err
	}
	return p.announce(ctx, payment, how)
}

// find returns the payment or the refund with this id.
func (p *provider) find(id string) (*Payment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, payment := range p.payments {
		if payment.id() == id {
			return payment, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", errNoPayment, id)
}

func (p *Payment) id() string {
	if p.RefundID != "" {
		return p.RefundID
	}
	return p.PaymentID
}

// list returns payments and refunds, oldest first, of one order or of all.
func (p *provider) list(orderID string, offset, limit int) []Payment {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := []Payment{}
	for _, payment := range p.payments {
		switch {
		case orderID != "" && payment.OrderID != orderID:
		case offset > 0:
			offset--
		case len(found) < limit:
			found = append(found, payment.clone())
		}
	}
	return found
}

func (p *Payment) clone() Payment {
	c := *p
	c.Callbacks = slices.Clone(p.Callbacks)
	return c
}

// body returns what is announced. It is the same in every copy and every
// attempt, byte for byte.
func (p *Payment) body() ([]byte, error) {
	type data struct {
		PaymentID string `json:"payment_id"`
		RefundID  string `json:"refund_id,omitempty"`
		OrderID   string `json:"order_id"`
		Money
	}
	kind := "payment.succeeded"
	switch {
	case p.RefundID != "":
		kind = "payment.refunded"
	case p.Failed:
		kind = "payment.failed"
	}
	return json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      data      `json:"data"`
	}{kind, p.CreatedAt, data{p.PaymentID, p.RefundID, p.OrderID, p.Money}})
}

func newID(prefix string) string { return prefix + rand.Text() }
