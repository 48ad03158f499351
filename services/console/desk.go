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

// A deskPage is what waits for a decision, of all services or of the one whose
// list goes on.
type deskPage struct {
	Settled  bool // exceptions that were decided are shown, in the place of those that wait
	from     deskPlace
	Services []answerOf[desk]
	Total    int
	Wrong    string // why a decision was not taken; At and Reason are what it was about
	At       string
	Reason   string
}

type desk struct {
	Exceptions     []opsapi.Exception
	MoreExceptions string // where they go on; empty if these are all
	Doubts         []opsapi.Doubt
	MoreDoubts     string
}

// deskLimit is how many of each kind one service shows on one page.
const deskLimit = 100

// A deskPlace is where one list of one service goes on; the zero value is the start
// of all lists.
type deskPlace struct{ service, exceptions, doubts string }

func (p deskPlace) start() bool { return p.exceptions == "" && p.doubts == "" }

func (s *Service) getDesk(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if state := q.Get("state"); state != "" && state != "settled" { // as with dead letters
		s.notFound(w, r)
		return
	}
	s.showDesk(w, r, http.StatusOK, deskPage{Settled: q.Get("state") == "settled", from: deskPlace{q.Get("service"), q.Get("exceptions"), q.Get("doubts")}})
}

func (s *Service) showDesk(w http.ResponseWriter, r *http.Request, status int, p deskPage) {
	state := "waiting"
	if p.Settled {
		state = "settled"
	}
	p.Services = everywhere(r.Context(), s, r, func(ctx context.Context, c *opsapi.Client) (desk, error) {
		return readDesk(ctx, c, state, p.from)
	})
	for _, answer := range p.Services {
		p.Total += len(answer.Answer.Exceptions) + len(answer.Answer.Doubts)
	}
	s.render(w, r, status, "desk", view{Nav: "desk", Data: p})
}

// readDesk reads a service's lists from a place on: both from the start, or the
// one that goes on, which is nothing of the other services.
func readDesk(ctx context.Context, c *opsapi.Client, state string, from deskPlace) (d desk, err error) {
	if !from.start() && from.service != c.Service() {
		return d, nil
	}
	if from.start() || from.exceptions != "" {
		page, err := c.Exceptions(ctx, state, "", from.exceptions, deskLimit)
		if err != nil {
			return d, err
		}
		d.Exceptions, d.MoreExceptions = page.Items, page.Next
	}
	if state == "waiting" && (from.start() || from.doubts != "") { // a doubt that was settled is a mail like any other
		page, err := c.Doubts(ctx, from.doubts, deskLimit)
		if err != nil {
			return d, err
		}
		d.Doubts, d.MoreDoubts = page.Items, page.Next
	}
	return d, nil
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
	for _, e := range open.Items {
		payments.since(e.FirstSeenAt)
	}
	mails := pile{service: name, what: "mail", waiting: len(doubts.Items)}
	for _, d := range doubts.Items {
		mails.since(d.Since)
	}
	return []pile{payments, mails}, nil
}

// since notes since when one thing of the pile has waited. They come in the
// order of their ids, which is not that of their ages: a mail that was written
// long ago can have come into doubt just now.
func (p *pile) since(at time.Time) {
	if p.oldest.IsZero() || at.Before(p.oldest) {
		p.oldest = at
	}
}
