package console

import (
	"context"
	"net/http"
	"time"

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
		doubts, err := c.Doubts(ctx, "", 100)
		d.Doubts = doubts.Items
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

// A pile is what waits for a decision at one service, of one kind.
type pile struct {
	service, what string
	waiting       int
	oldest        time.Time // zero if nothing waits
}

// deskBeat is how often piles are counted, and pileLimit up to how many: of more
// it is enough to know that there are so many.
const (
	deskBeat  = 10 * time.Second
	pileLimit = 1000
)

// watchDesk counts what waits for a decision, for metrics and alarms, until ctx
// is done.
func (s *Service) watchDesk(ctx context.Context) error {
	beat := time.NewTicker(deskBeat)
	defer beat.Stop()
	for {
		piles := s.readPiles(ctx, *s.piles.Load())
		s.piles.Store(&piles)
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
	}
}

// waiting is how many decisions wait, as last counted.
func (s *Service) waiting() (n int) {
	for _, p := range *s.piles.Load() {
		n += p.waiting
	}
	return n
}

// readPiles asks every service in turn. Of one that does not answer the last
// count stays: what waits there has not been decided by its silence.
func (s *Service) readPiles(ctx context.Context, last []pile) (piles []pile) {
	for _, name := range serviceNames {
		found, err := s.pilesOf(ctx, name)
		if err == nil {
			piles = append(piles, found...)
			continue
		}
		for _, p := range last {
			if p.service == name {
				piles = append(piles, p)
			}
		}
	}
	return piles
}

func (s *Service) pilesOf(ctx context.Context, name string) ([]pile, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	open, err := s.ops[name].Exceptions(ctx, "open", "", "", pileLimit)
	if err != nil {
		return nil, err
	}
	doubts, err := s.ops[name].Doubts(ctx, "", pileLimit)
	if err != nil {
		return nil, err
	}
	payments := pile{service: name, what: opsapi.EffectException, waiting: len(open.Items)}
	if payments.waiting > 0 { // the oldest is the first
		payments.oldest = open.Items[0].FirstSeenAt
	}
	mails := pile{service: name, what: "mail", waiting: len(doubts.Items)}
	if mails.waiting > 0 {
		mails.oldest = doubts.Items[0].Since
	}
	return []pile{payments, mails}, nil
}
