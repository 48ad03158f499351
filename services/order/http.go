package order

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/auth"
	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
)

// Handler returns the HTTP interface; v checks the callbacks of the payment
// provider, and guard says which customer is asking: he sees and cancels his own
// orders only. The catalogue is public. Every refusal is a problem document whose code says which of the
// reasons below it was, and leaves nothing written.
func (s *Service) Handler(v *Verifier, guard *auth.Guard) http.Handler {
	r := httpserver.NewRouter("order")
	r.Get("/v1/products", s.getProducts)
	r.Get("/v1/products/{sku}", s.getProduct)
	customers := r.With(guard.Customers)
	customers.Post("/v1/orders", s.postOrder)
	customers.Get("/v1/orders/{id}", s.getOrder)
	customers.Post("/v1/orders/{id}/cancel", s.postCancel)
	r.Post("/v1/webhooks/payments", s.postCallback(v))
	customers.Get("/v1/payment-exceptions", s.getPaymentExceptions)
	return r
}

// maxKeyBytes bounds ids and keys that others choose: they are indexed, and a
// B-tree row has an end.
const maxKeyBytes = 200

var (
	orderIDPattern = regexp.MustCompile(`^ord_[0-9a-f]{32}$`)
	userIDPattern  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	skuPattern     = regexp.MustCompile(`^[A-Z0-9][A-Z0-9-]{0,63}$`)
)

// The lists that cursors belong to.
const (
	listProductsV1   = "order.products.1"
	listExceptionsV1 = "order.exceptions.1"
)

type page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"` // absent on the last page
}

func (s *Service) getProducts(w http.ResponseWriter, r *http.Request) {
	var after string
	limit, err := httpserver.ReadPage(r, listProductsV1, &after)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	products, err := s.Products(r.Context(), after, limit)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	writePage(w, r, listProductsV1, limit, products, newProductView, func(p Product) any { return p.SKU })
}

// writePage answers with entries and, if there may be more, a cursor behind
// the last of them.
func writePage[T, V any](w http.ResponseWriter, r *http.Request, list string, limit int, entries []T, view func(T) V, key func(T) any) {
	p := page[V]{Items: each(entries, view)}
	if len(entries) == limit {
		var err error
		if p.NextCursor, err = httpserver.EncodeCursor(list, key(entries[limit-1])); err != nil {
			httpserver.WriteError(w, r, err)
			return
		}
	}
	httpserver.WriteJSON(w, http.StatusOK, p)
}

func (s *Service) getProduct(w http.ResponseWriter, r *http.Request) {
	sku := chi.URLParam(r, "sku")
	if !skuPattern.MatchString(sku) {
		httpserver.WriteError(w, r, problem(errNoProduct))
		return
	}
	p, err := s.Product(r.Context(), sku)
	if err != nil {
		httpserver.WriteError(w, r, problem(err))
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, newProductView(p))
}

func (s *Service) postOrder(w http.ResponseWriter, r *http.Request) {
	key, err := idempotencyKey(r)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	var wish PlaceOrder
	if err := httpserver.ReadJSON(w, r, &wish); err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	if err := wish.check(); err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	if !auth.May(r.Context(), wish.UserID) {
		httpserver.WriteError(w, r, auth.ErrNotYours)
		return
	}
	answer, err := s.PlaceOrder(r.Context(), key, wish)
	if err != nil {
		httpserver.WriteError(w, r, problem(err))
		return
	}
	if answer.Replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	httpserver.WriteJSON(w, answer.Status, json.RawMessage(answer.Body))
}

// idempotencyKey returns the key of a request that must have one.
func idempotencyKey(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", &httpserver.Error{Status: http.StatusBadRequest, Code: "idempotency_key_missing",
			Detail: "send an Idempotency-Key, a new one for each order and the same one for each repetition"}
	}
	if len(keys) > 1 || len(keys[0]) == 0 || len(keys[0]) > maxKeyBytes || !visible(keys[0]) {
		return "", &httpserver.Error{Status: http.StatusBadRequest, Code: "idempotency_key_invalid",
			Detail: fmt.Sprintf("an Idempotency-Key has 1 to %d visible ASCII characters", maxKeyBytes)}
	}
	return keys[0], nil
}

// visible reports whether s has nothing but printable ASCII without blanks.
func visible(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// check refuses what no catalogue could turn into an order.
func (p PlaceOrder) check() error {
	if !userIDPattern.MatchString(p.UserID) {
		return invalid("invalid_user_id", "user_id has 1 to 64 letters, digits, _ or -")
	}
	if _, known := Exponent(p.Currency); !known {
		return invalid("unknown_currency", "currency is not an ISO 4217 code that is known here")
	}
	if len(p.Items) == 0 {
		return invalid("no_items", "an order has at least one item")
	}
	if len(p.Items) > MaxLines {
		return invalid("too_many_items", "an order has at most %d items", MaxLines)
	}
	if p.Expected != nil && p.Expected.Currency != p.Currency {
		return invalid("currency_mismatch", "expected_total has another currency than the order")
	}
	seen := make(map[string]bool, len(p.Items))
	for i, item := range p.Items {
		switch {
		case !skuPattern.MatchString(item.SKU):
			return invalid("unknown_sku", "items[%d].sku is not a SKU of the catalogue", i)
		case item.Quantity < 1 || item.Quantity > MaxQuantity:
			return invalid("invalid_quantity", "items[%d].quantity is not from 1 to %d", i, MaxQuantity)
		case seen[item.SKU]:
			// Adding the two up would be a guess: it may be one item sent twice.
			return invalid("duplicate_sku", "items[%d].sku stands in an earlier item already", i)
		}
		seen[item.SKU] = true
	}
	return nil
}

func (s *Service) getOrder(w http.ResponseWriter, r *http.Request) {
	s.writeOrder(w, r, chi.URLParam(r, "id"))
}

func (s *Service) writeOrder(w http.ResponseWriter, r *http.Request, id string) {
	if !orderIDPattern.MatchString(id) {
		httpserver.WriteError(w, r, problem(errNoOrder))
		return
	}
	rec, err := s.ownOrder(r.Context(), id)
	if err != nil {
		httpserver.WriteError(w, r, problem(err))
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, newOrderView(rec, now()))
}

// ownOrder returns an order of the caller. Another's is not there for him:
// ids that exist are nobody else's business.
func (s *Service) ownOrder(ctx context.Context, id string) (record, error) {
	rec, err := s.Order(ctx, id)
	if err == nil && !auth.May(ctx, rec.UserID) {
		return record{}, errNoOrder
	}
	return rec, err
}

func (s *Service) postCancel(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if !orderIDPattern.MatchString(id) {
		httpserver.WriteError(w, r, problem(errNoOrder))
		return
	}
	var body struct {
		Reason string `json:"reason"`
	}
	if err := httpserver.ReadJSON(w, r, &body); err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	length := utf8.RuneCountInString(body.Reason)
	if length == 0 || length > maxReasonRunes || strings.ContainsFunc(body.Reason, unicode.IsControl) {
		httpserver.WriteError(w, r, invalid("invalid_reason", "reason is one line of 1 to %d characters", maxReasonRunes))
		return
	}
	if _, err := s.ownOrder(r.Context(), id); err != nil {
		httpserver.WriteError(w, r, problem(err))
		return
	}
	if err := s.Cancel(r.Context(), id, body.Reason); err != nil {
		httpserver.WriteError(w, r, problem(err))
		return
	}
	s.writeOrder(w, r, id)
}

const maxReasonRunes = 500

// postCallback answers the payment provider:
//
//	200  applied, already_applied, noted
//	202  held, kept: received for good and NOT applied; reason says why
//	400  the body cannot be read; 401 the signature is not the provider's;
//	422  a value cannot be right: nothing was kept
//	5xx  nothing was kept, or nobody knows: send it again
//
// What is kept gets no 4xx although the order did not follow it. A provider
// repeats what was not answered with 2xx, for days, and then switches the
// whole endpoint off, with all the good callbacks; and no repetition would
// help, because a person has to decide. That person finds it at
// /v1/payment-exceptions.
func (s *Service) postCallback(v *Verifier) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := httpserver.ReadBody(w, r)
		if err != nil {
			s.reportRefused(r.Context(), "", err)
			httpserver.WriteError(w, r, err)
			return
		}
		id, err := v.Verify(r.Header, body, time.Now())
		if err != nil {
			s.reportRefused(r.Context(), "", err)
			httpserver.WriteError(w, r, err)
			return
		}
		cb, err := parseCallback(id, body)
		if err != nil {
			s.reportRefused(r.Context(), id, err)
			httpserver.WriteError(w, r, err)
			return
		}
		out, err := s.ApplyCallback(r.Context(), cb)
		if err != nil {
			httpserver.WriteError(w, r, err)
			return
		}
		status := http.StatusOK
		if out.Result == ResultHeld || out.Result == ResultKept {
			status = http.StatusAccepted
		}
		httpserver.WriteJSON(w, status, struct {
			Result Result `json:"result"`
			Reason Reason `json:"reason,omitempty"`
		}{out.Result, out.Reason})
	}
}

func (s *Service) getPaymentExceptions(w http.ResponseWriter, r *http.Request) {
	if _, limited := auth.Only(r.Context()); limited { // they are everybody's: no business of one customer
		httpserver.WriteError(w, r, auth.ErrNotYours)
		return
	}
	var after int64
	limit, err := httpserver.ReadPage(r, listExceptionsV1, &after)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	exceptions, err := s.PaymentExceptions(r.Context(), after, limit)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	writePage(w, r, listExceptionsV1, limit, exceptions, newExceptionView, func(e Exception) any { return e.ID })
}

func invalid(code, format string, args ...any) error {
	return &httpserver.Error{Status: http.StatusUnprocessableEntity, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// problem is where the rules' and the catalogue's refusals get their status
// and code. What it does not know stays as it is: the edge answers 5xx.
func problem(err error) error {
	var item itemError
	var refusal *Refusal
	switch {
	case errors.As(err, &item) && errors.Is(err, errNoProduct):
		return invalid("unknown_sku", "items[%d].sku is not a SKU of the catalogue", item.index)
	case errors.As(err, &item):
		return invalid("not_sold_in_currency", "items[%d] is not sold in this currency", item.index)
	case errors.Is(err, errNoProduct):
		return &httpserver.Error{Status: http.StatusNotFound, Code: "product_not_found", Detail: "there is no product with this SKU"}
	case errors.Is(err, errNoOrder):
		return &httpserver.Error{Status: http.StatusNotFound, Code: "order_not_found", Detail: "there is no order with this id"}
	case errors.Is(err, errKeyReused):
		return invalid("idempotency_key_reused", "%v", errKeyReused)
	case errors.Is(err, errKeyBusy):
		return &httpserver.Error{Status: http.StatusConflict, Code: "idempotency_key_in_use", Detail: errKeyBusy.Error()}
	case errors.Is(err, errPriceMoved):
		return &httpserver.Error{Status: http.StatusConflict, Code: "price_changed", Detail: err.Error()}
	case errors.Is(err, ErrOverflow):
		return invalid("amount_overflow", "the total is more than can be counted")
	case errors.Is(err, messaging.ErrEventRefused):
		return invalid("order_too_large", "the order is too large to be announced; split it")
	case errors.As(err, &refusal):
		return &httpserver.Error{Status: http.StatusConflict, Code: string(refusal.Reason), Detail: refusal.Explanation}
	}
	return err
}
