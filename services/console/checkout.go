package console

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"regexp"
	"strconv"
)

// A checkout without an answer may have placed its order, and an answer that is
// lost on its way to the browser is lost unseen. So the browser keeps a key from
// the first look at the cart until it has an answer: if nothing has changed by
// then, what it orders again is the same order, and if something has, the order
// service says that the key stands for another one. Then there is no button. Who
// has seen the orders knows what was ordered, and gets a new key. Before that,
// to have seen them ends nothing: they may not show the order yet.

// unsure stands where the key was, once it stands for another order.
const unsure = "?"

// keptKey is how long a browser keeps either, in seconds: as long as somebody
// goes on trying, and less than the order service keeps keys.
const keptKey = 3600

var keyPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// getCart shows the cart, with the key under which it may have been ordered
// already.
func (s *Service) getCart(w http.ResponseWriter, r *http.Request) {
	shopper(w, r)
	key := keptOf(r)
	switch key {
	case unsure:
		key = ""
	case "":
		key = rand.Text()
		setCookie(w, r, checkoutCookie, key, keptKey)
	}
	s.showCart(w, r, http.StatusOK, key, "")
}

// keptOf returns the key of the next checkout, unsure, or nothing.
func keptOf(r *http.Request) string {
	if key := cookie(r, checkoutCookie); key == unsure || keyPattern.MatchString(key) {
		return key
	}
	return ""
}

// ordersSeen ends the doubt.
func ordersSeen(w http.ResponseWriter, r *http.Request) {
	if keptOf(r) == unsure {
		setCookie(w, r, checkoutCookie, "", -1)
	}
}

// An agreement is the total of the page on which the button was pressed.
type agreement struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// agreed returns nil when the page had no total: none of its prices were known.
func agreed(r *http.Request) *agreement {
	amount, err := strconv.ParseInt(r.PostFormValue("total"), 10, 64)
	if err != nil || r.PostFormValue("currency") == "" {
		return nil
	}
	return &agreement{Amount: amount, Currency: r.PostFormValue("currency")}
}

// postCheckout places the order. Sent twice, by a double click, a reload, or
// once more because no answer came, it is one order: the browser keeps the key
// of its cart, and every page until an answer has the same.
func (s *Service) postCheckout(w http.ResponseWriter, r *http.Request) {
	type item struct {
		SKU      string `json:"sku"`
		Quantity int    `json:"quantity"`
	}
	wish := struct {
		UserID   string     `json:"user_id"`
		Currency string     `json:"currency"`
		Items    []item     `json:"items"`
		Expected *agreement `json:"expected_total,omitempty"`
	}{UserID: shopper(w, r), Currency: currencyOf(r), Expected: agreed(r)}
	for _, line := range cartOf(r) {
		wish.Items = append(wish.Items, item(line))
	}
	if len(wish.Items) == 0 {
		http.Redirect(w, r, "/cart", http.StatusSeeOther)
		return
	}
	key := keptOf(r)
	if key == unsure {
		s.showCart(w, r, http.StatusConflict, "", "")
		return
	}
	key = cmp.Or(key, r.PostFormValue("key"))
	if !keyPattern.MatchString(key) {
		key = rand.Text()
	}
	var placed struct {
		OrderID string `json:"order_id"`
	}
	err := s.order.call(r.Context(), http.MethodPost, "/v1/orders", http.Header{"Idempotency-Key": {"console-" + key}}, wish, &placed)
	if err != nil {
		s.notPlaced(w, r, key, err)
		return
	}
	rememberOrder(w, r, placed.OrderID)
	setCart(w, r, nil)
	setCookie(w, r, checkoutCookie, "", -1)
	http.Redirect(w, r, "/pay/"+placed.OrderID, http.StatusSeeOther)
}

// notPlaced shows the cart again, after a refusal or without an answer.
func (s *Service) notPlaced(w http.ResponseWriter, r *http.Request, key string, err error) {
	var no *refusal
	answered := errors.As(err, &no) && no.Status/100 == 4
	switch {
	case answered && no.Code == "idempotency_key_reused":
		setCookie(w, r, checkoutCookie, unsure, keptKey)
		s.showCart(w, r, http.StatusConflict, "", "")
		return
	case !answered || no.Code == "idempotency_key_in_use":
		setCookie(w, r, checkoutCookie, key, keptKey)
	}
	s.showCart(w, r, http.StatusServiceUnavailable, key, s.said(r, err))
}
