package demo

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A client is a customer and a payment provider in one, who both write down
// every answer that they get.
type client struct {
	shop    string // base URL of the order service
	key     []byte // what callbacks are signed with
	http    *http.Client
	tokens  *tokens  // of the customers
	journal *Journal // set before anything is asked of the shop but its catalogue
}

// answerTimeout is how long the client waits before it calls an answer lost.
const answerTimeout = 5 * time.Second

// Repetitions of a request whose answer was lost.
const (
	firstRepeat = 50 * time.Millisecond // doubled each time, up to lastRepeat
	lastRepeat  = time.Second
)

func newClient(shop, issuer, webhookSecret string) (*client, error) {
	encoded, ok := strings.CutPrefix(webhookSecret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return nil, errors.New("the webhook secret is not whsec_ and base64")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = chaosWorkers, chaosWorkers // a new connection for each request would be most of its cost
	client := &client{shop: shop, key: key, http: &http.Client{Transport: transport, Timeout: answerTimeout}}
	client.tokens = newTokens(issuer, client.http)
	return client, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// An answer is what the shop said.
type answer struct {
	status int
	body   []byte
}

// outcome says what the answer means to whoever asked, and the code under
// which it was refused. A 5xx does not say that nothing happened, and a busy
// key says "not now": like silence, they make the client ask again under the
// same key. A callback that the shop has kept because it does not fit the order
// is answered with 202, and is a no all the same.
func (a answer) outcome() (outcome, code string) {
	var body struct {
		Code   string `json:"code"`   // of a problem
		Result string `json:"result"` // of a callback
		Reason string `json:"reason"` // why that was not applied
	}
	_ = json.Unmarshal(a.body, &body) // what is no JSON has none of these
	switch {
	case a.status == http.StatusAccepted && body.Result == "kept":
		return Refused, body.Reason
	case a.status/100 == 2:
		return Accepted, ""
	case a.status == http.StatusUnauthorized && strings.HasPrefix(body.Code, "token_"), a.status == http.StatusTooManyRequests:
		return Unknown, body.Code // nothing was tried: with another token, or later, it will be
	case a.status == 0 || a.status >= 500 || body.Code == "idempotency_key_in_use":
		return Unknown, body.Code
	default:
		return Refused, body.Code
	}
}

// ask makes the request until it has a definite answer, and journals each
// answer as it comes. about carries what the journal shall say besides;
// complete, if given, adds what only an accepted answer tells.
//
// It fails only when ctx ends first or the journal cannot be written.
func (c *client) ask(ctx context.Context, about Entry, request func() (*http.Request, error), complete func(*Entry, []byte) error) (Entry, error) {
	for pause := firstRepeat; ; pause = min(2*pause, lastRepeat) {
		req, err := request()
		if err != nil {
			return about, fmt.Errorf("%s of order %d: %w", about.Op, about.Order, err)
		}
		got := c.do(req.WithContext(ctx))
		if got.status == http.StatusUnauthorized {
			c.tokens.forget(about.UserID)
		}
		about.At, about.Status = now(), got.status
		about.Outcome, about.Code = got.outcome()
		if about.Outcome == Accepted && complete != nil {
			if err := complete(&about, got.body); err != nil {
				return about, fmt.Errorf("%s of order %d: read the answer: %w", about.Op, about.Order, err)
			}
		}
		if err := c.journal.Append(about); err != nil {
			return about, err
		}
		if about.Outcome != Unknown {
			return about, nil
		}
		select {
		case <-ctx.Done():
			return about, fmt.Errorf("%s of order %d has no answer: %w", about.Op, about.Order, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// do returns the zero answer when none came.
func (c *client) do(req *http.Request) answer {
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return answer{}
	}
	return answer{resp.StatusCode, body}
}

// money is an amount as the shop and the provider write it.
type money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Exponent int    `json:"exponent"`
}

// create places an order. Repeated under one key it is one order.
func (c *client) create(ctx context.Context, p plan) (Entry, money, error) {
	body, err := json.Marshal(map[string]any{"user_id": p.user, "currency": p.currency, "items": p.items})
	if err != nil {
		return Entry{}, money{}, err
	}
	var total money
	about := Entry{Order: p.number, Op: OpCreate, Key: p.key("order"), UserID: p.user, Currency: p.currency}
	entry, err := c.ask(ctx, about, func() (*http.Request, error) {
		req, err := http.NewRequest(http.MethodPost, c.shop+"/v1/orders", bytes.NewReader(body))
		if err == nil {
			c.tokens.sign(ctx, req, p.user)
			req.Header.Set("Idempotency-Key", about.Key)
			req.Header.Set("Content-Type", "application/json")
		}
		return req, err
	}, func(e *Entry, body []byte) error {
		var order struct {
			OrderID string `json:"order_id"`
			Total   money  `json:"total"`
		}
		if err := json.Unmarshal(body, &order); err != nil {
			return err
		}
		if order.OrderID == "" || order.Total.Currency != p.currency {
			return fmt.Errorf("it has no order id, or another currency than %s", p.currency)
		}
		total = order.Total
		e.OrderID, e.Amount = order.OrderID, order.Total.Amount
		return nil
	})
	return entry, total, err
}

// cancel gives an order up.
func (c *client) cancel(ctx context.Context, p plan, orderID string) (Entry, error) {
	about := Entry{Order: p.number, Op: OpCancel, Key: p.key("cancel"), OrderID: orderID, UserID: p.user}
	return c.ask(ctx, about, func() (*http.Request, error) {
		req, err := http.NewRequest(http.MethodPost, c.shop+"/v1/orders/"+orderID+"/cancel", strings.NewReader(`{"reason":"changed my mind"}`))
		if err == nil {
			c.tokens.sign(ctx, req, p.user)
			req.Header.Set("Content-Type", "application/json")
		}
		return req, err
	}, nil)
}

// A callback is what the payment provider announces.
type callback struct {
	webhookID string
	op        string // OpPay or OpRefund
	orderID   string
	paymentID string
	refundID  string // of a refund
	amount    money
	at        time.Time
}

// announce delivers a callback, signed as Standard Webhooks 1.0 prescribes.
func (c *client) announce(ctx context.Context, p plan, cb callback) (Entry, error) {
	data := map[string]any{"payment_id": cb.paymentID, "order_id": cb.orderID,
		"amount": cb.amount.Amount, "currency": cb.amount.Currency, "exponent": cb.amount.Exponent}
	kind := "payment.succeeded"
	if cb.op == OpRefund {
		kind = "payment.refunded"
		data["refund_id"] = cb.refundID
	}
	body, err := json.Marshal(map[string]any{"type": kind, "timestamp": cb.at, "data": data})
	if err != nil {
		return Entry{}, err
	}
	about := Entry{Order: p.number, Op: cb.op, Key: cb.webhookID, OrderID: cb.orderID, UserID: p.user,
		PaymentID: cb.paymentID, RefundID: cb.refundID, Amount: cb.amount.Amount, Currency: cb.amount.Currency}
	return c.ask(ctx, about, func() (*http.Request, error) {
		req, err := http.NewRequest(http.MethodPost, c.shop+"/v1/webhooks/payments", bytes.NewReader(body))
		if err == nil {
			c.sign(req, cb.webhookID, body)
		}
		return req, err
	}, nil)
}

// sign signs each attempt anew: the time of the attempt is part of it.
func (c *client) sign(req *http.Request, id string, body []byte) {
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", at)
	req.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// errNoShop: nobody is there to place orders with.
var errNoShop = errors.New("the order service does not answer")

// catalogue returns everything that the shop sells.
func (c *client) catalogue(ctx context.Context) ([]product, error) {
	var all []product
	for cursor, pages := "", 0; pages < 100; pages++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.shop+"/v1/products?cursor="+cursor, nil)
		if err != nil {
			return nil, err
		}
		got := c.do(req)
		if got.status == 0 {
			return nil, fmt.Errorf("%w at %s", errNoShop, req.URL.Host)
		}
		if outcome, _ := got.outcome(); outcome != Accepted {
			return nil, fmt.Errorf("read the catalogue: status %d", got.status)
		}
		var page struct {
			Items      []product `json:"items"`
			NextCursor string    `json:"next_cursor"`
		}
		if err := json.Unmarshal(got.body, &page); err != nil {
			return nil, fmt.Errorf("read the catalogue: %w", err)
		}
		all = append(all, page.Items...)
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the catalogue is empty")
	}
	return all, nil
}

// A product is what the client needs to know of one.
type product struct {
	SKU    string  `json:"sku"`
	Prices []money `json:"prices"`
}
