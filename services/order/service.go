package order

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"orderpaid/platform/messaging"
	"orderpaid/platform/postgres"
)

// ServiceConfig says what the shop promises. The zero value works.
type ServiceConfig struct {
	// Rule says what a payment earns. Defaults to DefaultPointsRule.
	Rule PointsRule

	// Promises says how long points and mail may take after the payment.
	// Defaults to 30 s and 60 s.
	Promises Promises

	// Meters defaults to the global OpenTelemetry provider.
	Meters metric.MeterProvider
}

// Service is what the shop can do with orders: one method per use case, one
// transaction each. What the payment provider says is in callback.go.
type Service struct {
	pool      *pgxpool.Pool
	outbox    *messaging.Outbox
	cfg       ServiceConfig
	callbacks metric.Int64Counter
}

// NewService returns a service on a migrated database.
func NewService(pool *pgxpool.Pool, outbox *messaging.Outbox, cfg ServiceConfig) (*Service, error) {
	if cfg.Rule == nil {
		cfg.Rule = DefaultPointsRule()
	}
	for currency, per := range cfg.Rule {
		if _, known := Exponent(currency); !known || per < 1 {
			return nil, fmt.Errorf("points rule: %d minor units of %q earn one point: unknown currency or not above zero", per, currency)
		}
	}
	if cfg.Promises.Points < 0 || cfg.Promises.Notification < 0 {
		return nil, fmt.Errorf("promises: %s and %s: a promise cannot lie in the past", cfg.Promises.Points, cfg.Promises.Notification)
	}
	cfg.Promises.Points = cmp.Or(cfg.Promises.Points, 30*time.Second)
	cfg.Promises.Notification = cmp.Or(cfg.Promises.Notification, 60*time.Second)
	if cfg.Meters == nil {
		cfg.Meters = otel.GetMeterProvider()
	}
	callbacks, err := cfg.Meters.Meter("orderpaid/services/order").Int64Counter("shop_payment_callbacks",
		metric.WithDescription("Payment callbacks with a right signature, by what was made of them."))
	if err != nil {
		return nil, fmt.Errorf("make metric: %w", err)
	}
	return &Service{pool: pool, outbox: outbox, cfg: cfg, callbacks: callbacks}, nil
}

// Products returns up to limit products of the catalogue, by SKU, behind the
// SKU after.
func (s *Service) Products(ctx context.Context, after string, limit int) ([]Product, error) {
	return listProducts(ctx, s.pool, after, limit)
}

// Product returns one product, or errNoProduct.
func (s *Service) Product(ctx context.Context, sku string) (Product, error) {
	return findProduct(ctx, s.pool, sku)
}

// PlaceOrder is a customer's wish. It has been checked for form, not yet
// against the catalogue.
type PlaceOrder struct {
	UserID   string         `json:"user_id"`
	Currency string         `json:"currency"`
	Items    []PlaceItem    `json:"items"`
	Expected *ExpectedTotal `json:"expected_total,omitempty"`
}

// PlaceItem is one product of a wish.
type PlaceItem struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// ExpectedTotal is what the customer was shown. It never sets a price: it only
// stops the order when the catalogue has another one by now.
type ExpectedTotal struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// hash identifies a wish, for idempotency. Its canonical form is the wish
// encoded anew: blanks, the order of fields and the spelling of escapes do not
// make another request; the order of items does. Fields that are added later
// must be left out when they are absent, or every stored hash changes.
func (p PlaceOrder) hash() ([]byte, error) {
	canonical, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(canonical)
	return sum[:], nil
}

// placeOrderKeys is the name under which the idempotency keys of a customer's
// orders are kept. Keys of different routes do not meet, and neither do those of
// different customers: whoever guesses another's key could otherwise make it
// useless to him.
func placeOrderKeys(user string) string { return "POST /v1/orders " + user }

// Errors of PlaceOrder, beside those of the catalogue.
var (
	errKeyReused  = errors.New("the idempotency key stands for another request")
	errKeyBusy    = errors.New("a request with this idempotency key is being worked on")
	errPriceMoved = errors.New("the price has changed")
)

// An Answer is what a client gets for a request with an idempotency key, now
// and whenever it repeats the request.
type Answer struct {
	Status   int
	Body     []byte // JSON
	Replayed bool   // it was given before, and nothing was done this time
}

// PlaceOrder checks the wish against the catalogue and creates the order.
//
// The idempotency key, the order, OrderCreated and the answer commit together.
// A repetition gets the stored answer; one that comes while the first is still
// in its transaction waits for that to end. A refused wish leaves no trace, so
// its key is free.
func (s *Service) PlaceOrder(ctx context.Context, key string, wish PlaceOrder) (answer Answer, err error) {
	hash, err := wish.hash()
	if err != nil {
		return Answer{}, fmt.Errorf("hash request: %w", err)
	}
	err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		known, err := claimKey(ctx, tx, placeOrderKeys(wish.UserID), key, hash)
		switch {
		case postgres.Code(err) == "55P03": // lock_timeout: the twin takes too long
			return errKeyBusy
		case err != nil:
			return err
		case known != nil && !bytes.Equal(known.requestHash, hash):
			return errKeyReused
		case known != nil:
			answer = Answer{known.status, known.body, true}
			return nil
		}
		o, err := s.create(ctx, tx, wish)
		if err != nil {
			return err
		}
		answer.Status = http.StatusCreated
		if answer.Body, err = encode(newOrderView(record{Order: o, History: []entry{createdEntry(o)}}, o.CreatedAt)); err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		return storeAnswer(ctx, tx, placeOrderKeys(wish.UserID), key, answer.Status, answer.Body)
	})
	return answer, err
}

// create writes the order and stages OrderCreated.
func (s *Service) create(ctx context.Context, tx pgx.Tx, wish PlaceOrder) (Order, error) {
	id, err := newOrderID()
	if err != nil {
		return Order{}, err
	}
	lines, err := priceLines(ctx, tx, wish)
	if err != nil {
		return Order{}, err
	}
	o, err := Place(id, wish.UserID, wish.Currency, lines, now())
	if err != nil {
		return Order{}, err
	}
	if e := wish.Expected; e != nil && (Money{e.Amount, e.Currency}) != o.Total {
		return Order{}, fmt.Errorf("%w: the total is %s", errPriceMoved, o.Total)
	}
	if err := insertOrder(ctx, tx, o); err != nil {
		return Order{}, err
	}
	return o, s.outbox.Add(ctx, tx, o.created())
}

// newOrderID returns a UUIDv7 as "ord_" and 32 digits: ids grow with time,
// which keeps inserts at one end of the index.
func newOrderID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make order id: %w", err)
	}
	return "ord_" + hex.EncodeToString(id[:]), nil
}

// priceLines takes titles and prices from the catalogue.
func priceLines(ctx context.Context, tx pgx.Tx, wish PlaceOrder) ([]Line, error) {
	skus := make([]string, len(wish.Items))
	for i, item := range wish.Items {
		skus[i] = item.SKU
	}
	offers, err := findOffers(ctx, tx, skus, wish.Currency)
	if err != nil {
		return nil, err
	}
	lines := make([]Line, len(wish.Items))
	for i, item := range wish.Items {
		o, found := offers[item.SKU]
		switch {
		case !found:
			return nil, itemError{i, errNoProduct}
		case o.amount == nil:
			return nil, itemError{i, errNotSoldIn}
		}
		lines[i] = Line{SKU: item.SKU, Titles: o.titles, Quantity: item.Quantity, Unit: Money{*o.amount, wish.Currency}}
	}
	return lines, nil
}

var errNotSoldIn = errors.New("not sold in this currency")

// itemError says which item of a wish the catalogue does not have.
type itemError struct {
	index int
	err   error
}

func (e itemError) Error() string { return fmt.Sprintf("items[%d]: %v", e.index, e.err) }
func (e itemError) Unwrap() error { return e.err }

// Order returns an order with everything that is known about it, or errNoOrder.
//
// It reads several tables and must not mix two states of the order, hence one
// snapshot. postgres.InTx is for changes, whose commit may end in doubt; here
// there is nothing to commit.
func (s *Service) Order(ctx context.Context, id string) (rec record, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error {
		rec, err = readOrder(ctx, tx, id)
		return err
	})
	return rec, err
}

// Cancel gives an order up that was not paid. To cancel it again changes
// nothing and is no error, whatever the reason given.
func (s *Service) Cancel(ctx context.Context, id, reason string) error {
	return postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		o, err := lockOrder(ctx, tx, id)
		if err != nil {
			return err
		}
		err = o.Cancel(reason, now())
		if errors.Is(err, ErrAlreadyApplied) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := saveOrder(ctx, tx, o, entry{o.Version, "cancelled", actorCustomer, reason, o.CancelledAt}); err != nil {
			return err
		}
		if err := s.outbox.Add(ctx, tx, o.cancelled()); err != nil {
			return err
		}
		return s.releaseHeld(ctx, tx, &o, o.CancelledAt) // no payment will be taken any more: a person must look
	})
}

// now is the time as PostgreSQL can store it: what an event says of a moment
// and what the row says must be the same to the last digit.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
