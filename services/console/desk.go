package console

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/opsapi"
)

// What only a person can decide: payments that no order shows, and mails of
// which nobody knows whether they arrived. As on all pages of operators, the
// services allow it or not, and record who it was and why.

// A deskPage is what waits for a decision, of all services.
type deskPage struct {
	Settled  bool // exceptions that were decided are shown, in the place of those that wait
	Services []answerOf[desk]
	Total    int
	Wrong    string // why a decision was not taken; At and Reason are what it was about
	At       string
	Reason   string
}

type desk struct {
	Exceptions []opsapi.Exception
	Doubts     []opsapi.Doubt
}

func (s *Service) getDesk(w http.ResponseWriter, r *http.Request) {
	s.showDesk(w, r, http.StatusOK, deskPage{Settled: r.URL.Query().Get("state") == "settled"})
}

func (s *Service) showDesk(w http.ResponseWriter, r *http.Request, status int, p deskPage) {
	state := "waiting"
	if p.Settled {
		state = "settled"
	}
	p.Services = everywhere(r.Context(), s, r, func(ctx context.Context, c *opsapi.Client) (d desk, err error) {
		page, err := c.Exceptions(ctx, state, "", "", 100)
		if err != nil || p.Settled { // a doubt that was settled is a mail like any other
			return desk{Exceptions: page.Items}, err
		}
		d.Exceptions = page.Items
		d.Doubts, err = c.Doubts(ctx)
		return d, err
	})
	for _, answer := range p.Services {
		p.Total += len(answer.Answer.Exceptions) + len(answer.Answer.Doubts)
	}
	s.render(w, r, status, "desk", view{Nav: "desk", Data: p})
}

// An exceptionPage is one exception with what was announced, without values,
// and what people did about it.
type exceptionPage struct {
	Service string
	opsapi.ExceptionDetail
	Shape  string
	Wrong  string
	Reason string // that was given, kept in the form
}

// Waits reports whether somebody can still decide.
func (p exceptionPage) Waits() bool { return p.State == "open" || p.State == "held" }

func (s *Service) getException(w http.ResponseWriter, r *http.Request) {
	s.showException(w, r, http.StatusOK, exceptionPage{})
}

func (s *Service) showException(w http.ResponseWriter, r *http.Request, status int, p exceptionPage) {
	p.Service = chi.URLParam(r, "service")
	client, err := s.act(r, p.Service)
	if err == nil {
		p.ExceptionDetail, err = client.Exception(r.Context(), chi.URLParam(r, "id"))
	}
	if err != nil {
		s.render(w, r, http.StatusNotFound, "missing", view{Nav: "desk", Notice: s.opsSaid(r, err)})
		return
	}
	p.Shape = indented(p.Masked)
	s.render(w, r, status, "exception", view{Nav: "desk", Data: p})
}

// postException settles one. What somebody else, or a payment, has settled
// meanwhile is left as it is, and the page shows by whom.
func (s *Service) postException(w http.ResponseWriter, r *http.Request) {
	reason := r.PostFormValue("reason")
	client, err := s.act(r, chi.URLParam(r, "service"))
	if err == nil {
		_, err = client.SettleExceptions(r.Context(), opsapi.ExceptionSelection{IDs: []string{chi.URLParam(r, "id")}, Reason: reason})
	}
	if err != nil {
		s.showException(w, r, http.StatusUnprocessableEntity, exceptionPage{Wrong: s.opsSaid(r, err), Reason: reason})
		return
	}
	setNotice(w, r, s.text(r, "desk.done.exception"))
	http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
}

// postDoubt ends one by what the visitor has found out.
func (s *Service) postDoubt(w http.ResponseWriter, r *http.Request) {
	service, id := chi.URLParam(r, "service"), chi.URLParam(r, "id")
	decision := opsapi.DoubtDecision{ID: id, Outcome: r.PostFormValue("outcome"), Reason: r.PostFormValue("reason")}
	client, err := s.act(r, service)
	if err == nil {
		err = client.SettleDoubt(r.Context(), decision)
	}
	if err != nil {
		s.showDesk(w, r, http.StatusUnprocessableEntity, deskPage{Wrong: s.opsSaid(r, err), At: service + "/" + id, Reason: decision.Reason})
		return
	}
	setNotice(w, r, s.text(r, "desk.done."+decision.Outcome))
	http.Redirect(w, r, "/operate/desk", http.StatusSeeOther)
}
