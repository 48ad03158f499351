package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
)

// An order as the order service tells it.
type order struct {
	OrderID  string `json:"order_id"`
	UserID   string `json:"user_id"`
	State    string `json:"state"`
	Total    Money  `json:"total"`
	Refunded Money  `json:"refunded_total"`
	Points   int64  `json:"points"`
	Items    []struct {
		SKU      string `json:"sku"`
		Titles   Titles `json:"titles"`
		Quantity int64  `json:"quantity"`
		Total    Money  `json:"line_total"`
	} `json:"items"`
	Payments []struct {
		PaymentID string    `json:"payment_id"`
		At        time.Time `json:"succeeded_at"`
	} `json:"payments"`
	FollowUps  []followUp `json:"follow_ups"`
	Exceptions []struct {
		Reason      string `json:"reason"`
		State       string `json:"state"`
		PaymentID   string `json:"payment_id"`
		Occurrences int64  `json:"occurrences"`
	} `json:"payment_exceptions"`
	CreatedAt time.Time `json:"created_at"`
	PaidAt    time.Time `json:"paid_at"`
}

type followUp struct {
	Kind       string    `json:"kind"`
	State      string    `json:"state"`
	Since      time.Time `json:"since"`
	PromisedBy time.Time `json:"promised_by"`
	DoneAt     time.Time `json:"done_at"`
	Code       string    `json:"code"`
}

// An orderPage is an order with what the page needs beside it.
type orderPage struct {
	order
	Silent bool
}

// Open reports whether something is still on its way, so that the page watches.
func (o orderPage) Open() bool {
	if o.Silent || o.State == "PENDING_PAYMENT" {
		return true
	}
	for _, f := range o.FollowUps {
		if f.State == "pending" || f.State == "late" {
			return true
		}
	}
	return false
}

func (s *Service) readOrder(ctx context.Context, id string) (orderPage, error) {
	o := orderPage{}
	o.OrderID = id
	err := s.order.get(ctx, "/v1/orders"+path(id), &o.order)
	o.Silent = err != nil
	return o, err
}

// orderParam returns the order that the path names, or answers 404.
func (s *Service) orderParam(w http.ResponseWriter, r *http.Request) (orderPage, bool) {
	id := chi.URLParam(r, "id")
	if !orderIDPattern.MatchString(id) {
		s.notFound(w, r)
		return orderPage{}, false
	}
	o, err := s.readOrder(r.Context(), id)
	var no *refusal
	if errors.As(err, &no) && no.Status == http.StatusNotFound {
		s.notFound(w, r)
		return orderPage{}, false
	}
	return o, true
}

func (s *Service) notFound(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, http.StatusNotFound, "missing", view{})
}

func (s *Service) getOrder(w http.ResponseWriter, r *http.Request) {
	o, found := s.orderParam(w, r)
	if !found {
		return
	}
	v := view{Nav: "orders", Data: o}
	if o.Open() {
		v.Refresh = 3
	}
	s.render(w, r, http.StatusOK, "order", v)
}

// getOrders shows the customer's orders: those of this browser, and those that
// search knows of the customer, a page at a time. Each is read from the order
// service.
func (s *Service) getOrders(w http.ResponseWriter, r *http.Request) {
	var ids []string
	query := url.Values{"user_id": {shopper(w, r)}, "limit": {"20"}}
	cursor := r.URL.Query().Get("cursor")
	if cursor == "" {
		ids = ordersOf(r)
	} else {
		query.Set("cursor", cursor)
	}
	found, err := s.find(r.Context(), query)
	for _, hit := range found.Orders {
		if orderIDPattern.MatchString(hit.OrderID) && len(ids) < 2*keptOrders && !slices.Contains(ids, hit.OrderID) {
			ids = append(ids, hit.OrderID)
		}
	}
	orders := make([]orderPage, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { orders[i], _ = s.readOrder(r.Context(), id) }) // a silent one is shown as such
	}
	wg.Wait()
	if err == nil && cursor == "" { // without search, an order whose answer was lost is not among them
		ordersSeen(w, r)
	}
	s.render(w, r, http.StatusOK, "orders", view{Nav: "orders", Data: struct {
		Orders []orderPage
		Next   string // where older ones begin; empty if there are none
		Silent bool   // search is
	}{orders, found.NextCursor, err != nil}})
}

// getPay is the page of the simulated payment provider.
func (s *Service) getPay(w http.ResponseWriter, r *http.Request) {
	if o, found := s.payable(w, r); found {
		s.render(w, r, http.StatusOK, "pay", view{Nav: "orders", Data: o})
	}
}

// payable is orderParam for an order that may still be paid. Any other leads to
// what became of it: who went back to this page, or kept it in a second tab,
// would pay again.
func (s *Service) payable(w http.ResponseWriter, r *http.Request) (orderPage, bool) {
	o, found := s.orderParam(w, r)
	if found && (o.State == "PAID" || o.State == "CANCELLED") {
		http.Redirect(w, r, "/orders/"+o.OrderID, http.StatusSeeOther)
		return orderPage{}, false
	}
	return o, found
}

// The ways to pay that the page offers, as what the provider is asked for.
var payments = map[string][]map[string]any{
	"once":   {{}},
	"triple": {{"announce": map[string]any{"copies": 3, "fresh_ids": true}}},
	"twice":  {{}, {}},
	"late":   {{"announce": map[string]any{"delay_ms": 8000}}},
	"fail":   {{"failed": true}},
}

// postPay asks the provider to take the money, or to pretend. What the shop
// makes of it, the provider's callbacks decide and not this page.
func (s *Service) postPay(w http.ResponseWriter, r *http.Request) {
	o, found := s.payable(w, r)
	if !found {
		return
	}
	wishes, known := payments[r.PostFormValue("how")]
	if !known || o.Silent {
		s.render(w, r, http.StatusServiceUnavailable, "pay", view{Nav: "orders", Notice: s.text(r, "no_answer"), Data: o})
		return
	}
	for _, wish := range wishes {
		body := map[string]any{"order_id": o.OrderID, "amount": o.Total.Amount, "currency": o.Total.Currency, "exponent": o.Total.Exponent}
		for name, value := range wish {
			body[name] = value
		}
		if err := s.sim.post(r.Context(), "/payments", body, nil); err != nil {
			s.render(w, r, http.StatusServiceUnavailable, "pay", view{Nav: "orders", Notice: s.said(r, err), Data: o})
			return
		}
	}
	setNotice(w, r, s.text(r, "pay.done."+r.PostFormValue("how")))
	http.Redirect(w, r, "/orders/"+o.OrderID, http.StatusSeeOther)
}

// A hit is an order as search has it.
type hit struct {
	OrderID string `json:"order_id"`
	UserID  string `json:"user_id"`
	State   string `json:"state"`
	Items   []struct {
		SKU      string `json:"sku"`
		Titles   Titles `json:"titles"`
		Quantity int64  `json:"quantity"`
	} `json:"items"`
	Total     Money     `json:"total"`
	CreatedAt time.Time `json:"created_at"`
}

type hits struct {
	Orders      []hit      `json:"orders"`
	NextCursor  string     `json:"next_cursor"`
	IndexedAsOf *time.Time `json:"indexed_as_of"`
}

func (s *Service) find(ctx context.Context, query url.Values) (h hits, err error) {
	return h, s.search.get(ctx, "/v1/orders/search?"+query.Encode(), &h)
}

// getSearch searches all orders: the page is for trying the index, in any
// script, with whatever the demo's customers have ordered.
func (s *Service) getSearch(w http.ResponseWriter, r *http.Request) {
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	data := struct {
		Query string
		hits
		Wrong string
	}{Query: q}
	query := url.Values{"limit": {"20"}}
	if q != "" {
		query.Set("q", q)
	}
	if cursor := r.URL.Query().Get("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	var err error
	if data.hits, err = s.find(r.Context(), query); err != nil {
		data.Wrong = s.said(r, err)
	}
	s.render(w, r, http.StatusOK, "search", view{Nav: "search", Data: data})
}

// An account is what a customer has beside orders.
type account struct {
	User    string
	Balance struct {
		Balance   int64     `json:"balance"`
		Overdrawn bool      `json:"overdrawn"`
		AsOf      time.Time `json:"as_of"`
	}
	Entries struct {
		Entries []struct {
			OrderID  string    `json:"order_id"`
			Kind     string    `json:"kind"`
			Points   int64     `json:"points"`
			BookedAt time.Time `json:"booked_at"`
		} `json:"entries"`
		NextCursor string `json:"next_cursor"`
	}
	Mails struct {
		Notifications []mail `json:"notifications"`
		NextCursor    string `json:"next_cursor"`
	}
	PointsSilent, MailsSilent bool
}

type mail struct {
	OrderID   string    `json:"order_id"`
	State     string    `json:"state"`
	Code      string    `json:"code"`
	Attempts  int       `json:"attempts"`
	UpdatedAt time.Time `json:"updated_at"`
	Subject   string    `json:"-"`
	Text      string    `json:"-"`
}

// getAccount shows the customer's points and mails, each from its place on.
func (s *Service) getAccount(w http.ResponseWriter, r *http.Request) {
	a := account{User: shopper(w, r)}
	ctx, user := r.Context(), path(a.User)
	from := func(limit, list string) string {
		page := url.Values{"limit": {limit}}
		if cursor := r.URL.Query().Get(list); cursor != "" {
			page.Set("cursor", cursor)
		}
		return "?" + page.Encode()
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		a.PointsSilent = s.points.get(ctx, "/v1/users"+user+"/points", &a.Balance) != nil ||
			s.points.get(ctx, "/v1/users"+user+"/points/entries"+from("20", "points"), &a.Entries) != nil
	})
	wg.Go(func() {
		a.MailsSilent = s.notify.get(ctx, "/v1/users"+user+"/notifications"+from("10", "mails"), &a.Mails) != nil
		s.readMails(ctx, a.Mails.Notifications)
	})
	wg.Wait()
	s.render(w, r, http.StatusOK, "account", view{Nav: "account", Data: a})
}

// readMails adds what arrived, where a demo's mail server can be asked.
func (s *Service) readMails(ctx context.Context, mails []mail) {
	if s.sim.base == "" {
		return
	}
	for i := range mails {
		var box struct {
			Mails []struct {
				Subject string `json:"subject"`
				Text    string `json:"text"`
			} `json:"mails"`
		}
		if err := s.sim.get(ctx, "/mails?"+url.Values{"order": {mails[i].OrderID}, "limit": {"1"}}.Encode(), &box); err != nil {
			return
		}
		if len(box.Mails) > 0 {
			mails[i].Subject, mails[i].Text = box.Mails[0].Subject, box.Mails[0].Text
		}
	}
}

// postShopper lets the visitor shop as another customer.
func (s *Service) postShopper(w http.ResponseWriter, r *http.Request) {
	if id := strings.TrimSpace(r.PostFormValue("user")); userIDPattern.MatchString(id) {
		setCookie(w, r, shopperCookie, id, month)
		setCookie(w, r, ordersCookie, "", -1)
	}
	http.Redirect(w, r, "/account", http.StatusSeeOther)
}
