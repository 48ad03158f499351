package sim

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/httpserver"
)

// api is the whole interface of the world outside, for the demo, for tests
// and for people with curl.
type api struct {
	box      *mailbox
	faults   *faults
	provider *provider
	issuer   *issuer
}

func (a *api) routes() http.Handler {
	r := httpserver.NewRouter("sim")
	r.Get("/mails", a.listMails)
	r.Get("/mails/totals", a.mailTotals)
	r.Delete("/mails", a.deleteMails)

	r.Get("/faults", a.listFaults)
	r.Put("/faults", a.setFaults)
	r.Delete("/faults", a.clearFaults)

	r.Post("/payments", a.pay)
	r.Get("/payments", a.listPayments)
	r.Post("/payments/{id}/refunds", a.refund)
	r.Post("/payments/{id}/callbacks", a.announceAgain)

	r.Get("/token", a.issuer.token)
	r.Get("/.well-known/jwks.json", a.issuer.keys)

	r.Get("/readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return r
}

// listMails answers GET /mails?to=&order=&message_id=&offset=&limit=.
func (a *api) listMails(w http.ResponseWriter, r *http.Request) {
	ask, offset, limit, err := page(r, "to", "order", "message_id")
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	mails, err := a.box.find(Query{ask.Get("to"), ask.Get("order"), ask.Get("message_id"), offset, limit})
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, struct {
		Mails []Mail `json:"mails"`
	}{mails})
}

func (a *api) mailTotals(w http.ResponseWriter, _ *http.Request) {
	httpserver.WriteJSON(w, http.StatusOK, a.box.totals())
}

func (a *api) deleteMails(w http.ResponseWriter, r *http.Request) {
	if err := a.box.clear(); err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// faultList is the body of /faults in both directions.
type faultList struct {
	Faults []Fault `json:"faults"`
}

func (a *api) listFaults(w http.ResponseWriter, _ *http.Request) {
	httpserver.WriteJSON(w, http.StatusOK, faultList{a.faults.current()})
}

// setFaults replaces all faults.
func (a *api) setFaults(w http.ResponseWriter, r *http.Request) {
	var body faultList
	if err := httpserver.ReadJSON(w, r, &body); err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	for i := range body.Faults {
		if err := body.Faults[i].complete(); err != nil {
			httpserver.WriteError(w, r, invalid(err))
			return
		}
	}
	a.faults.set(body.Faults)
	httpserver.WriteJSON(w, http.StatusOK, faultList{a.faults.current()})
}

func (a *api) clearFaults(w http.ResponseWriter, _ *http.Request) {
	a.faults.set(nil)
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) pay(w http.ResponseWriter, r *http.Request) {
	var body struct {
		OrderID  string       `json:"order_id"`
		Amount   int64        `json:"amount"`
		Currency string       `json:"currency"`
		Exponent int          `json:"exponent"`
		Failed   bool         `json:"failed"`
		Announce Announcement `json:"announce"`
	}
	err := httpserver.ReadJSON(w, r, &body)
	if err == nil {
		err = errors.Join(check(body.OrderID != "" && len(body.OrderID) <= 200, "order_id must have 1 to 200 bytes"),
			check(body.Amount >= 0, "amount must not be negative"), body.Announce.complete())
		err = invalid(err)
	}
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	payment, err := a.provider.pay(r.Context(), body.OrderID, Money{body.Amount, body.Currency, body.Exponent}, body.Failed, body.Announce)
	answer(w, r, payment, err)
}

func (a *api) refund(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Amount   int64        `json:"amount"`
		Announce Announcement `json:"announce"`
	}
	err := httpserver.ReadJSON(w, r, &body)
	if err == nil {
		err = invalid(errors.Join(check(body.Amount > 0, "amount must be positive"), body.Announce.complete()))
	}
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	refund, err := a.provider.refund(r.Context(), chi.URLParam(r, "id"), body.Amount, body.Announce)
	answer(w, r, refund, err)
}

// announceAgain repeats the callbacks of a payment or of a refund.
func (a *api) announceAgain(w http.ResponseWriter, r *http.Request) {
	var how Announcement
	err := httpserver.ReadJSON(w, r, &how)
	if err == nil {
		err = invalid(how.complete())
	}
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	payment, err := a.provider.again(r.Context(), chi.URLParam(r, "id"), how)
	answer(w, r, payment, err)
}

// listPayments answers GET /payments?order=&offset=&limit=, refunds included.
func (a *api) listPayments(w http.ResponseWriter, r *http.Request) {
	ask, offset, limit, err := page(r, "order")
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, struct {
		Payments []Payment `json:"payments"`
	}{a.provider.list(ask.Get("order"), offset, limit)})
}

// answer writes what the provider has recorded, or why it has not.
func answer(w http.ResponseWriter, r *http.Request, p Payment, err error) {
	switch {
	case errors.Is(err, errNoPayment):
		err = &httpserver.Error{Status: http.StatusNotFound, Code: "payment_not_found", Detail: errNoPayment.Error()}
	case errors.Is(err, errBusy):
		err = &httpserver.Error{Status: http.StatusServiceUnavailable, Code: "busy", Detail: errBusy.Error()}
	}
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	httpserver.WriteJSON(w, http.StatusCreated, p)
}

// page reads offset and limit, by default the first 100, and the filters of
// these names. Others are refused: the list would be everybody's.
func page(r *http.Request, filters ...string) (ask url.Values, offset, limit int, err error) {
	const maxLimit = 1000
	limit = 100
	if ask, err = httpserver.ReadQuery(r, append(filters, "offset", "limit")...); err != nil {
		return nil, 0, 0, err
	}
	for name, value := range map[string]*int{"offset": &offset, "limit": &limit} {
		if given := ask.Get(name); given != "" {
			if *value, err = strconv.Atoi(given); err != nil || *value < 0 {
				return nil, 0, 0, invalid(errors.New(name + " must be a whole number, not negative"))
			}
		}
	}
	return ask, offset, min(limit, maxLimit), nil
}

func check(ok bool, otherwise string) error {
	if ok {
		return nil
	}
	return errors.New(otherwise)
}

// invalid makes a refusal of the client's wish into an answer. invalid(nil) is nil.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return &httpserver.Error{Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: err.Error()}
}
