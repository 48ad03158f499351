package opsapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
)

// A Doubt is an effect outside of the shop, such as a mail, of which nobody
// knows whether it happened: the other side took it and never answered. To
// repeat it may make two of it, and to leave it may mean none, so a person who
// has looked decides.
type Doubt struct {
	ID    string    `json:"id"`   // of the effect
	Key   string    `json:"key"`  // of what it is about: an order
	What  string    `json:"what"` // as in [Effect]
	Code  string    `json:"code"`
	Since time.Time `json:"since"`
}

// A DoubtDesk is what a service lets be done about its doubts. Either both of
// its functions are nil, for a service that has none, or none is.
type DoubtDesk struct {
	// List returns doubts in the order of their ids, behind the id after.
	List func(ctx context.Context, after string, limit int) ([]Doubt, error)

	// Settle ends one: it happened, or it shall be tried again, which may also be
	// said of an effect that was given up. It records who says so and why in the
	// same transaction under [DoubtTarget]. It returns ErrNoDoubt if there is none
	// with this id, any more.
	Settle func(ctx context.Context, id string, happened bool, who messaging.Actor) error
}

// A DoubtDecision is what a person has found out. Outcome is happened, or
// again for what shall be tried once more.
type DoubtDecision struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
}

// Outcomes of a doubt.
const (
	OutcomeHappened = "happened"
	OutcomeAgain    = "again"
)

// ErrNoDoubt: there is no doubt about an effect with this id.
var ErrNoDoubt = errors.New("there is no doubt about this")

// DoubtTarget names an effect in the record of actions.
func DoubtTarget(id string) string { return "doubt " + id }

func (a *API) doubts(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	limit, after := p.limit(), p.text("after")
	if err := p.end(); err != nil {
		return nil, err
	}
	if a.cfg.Own.Doubts.List == nil {
		return Page[Doubt]{Items: []Doubt{}}, nil
	}
	found, err := a.cfg.Own.Doubts.List(r.Context(), after, limit+1)
	if err != nil {
		return nil, err
	}
	return newPage(found, limit, func(d Doubt) string { return d.ID }), nil
}

func (a *API) settleDoubt(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked DoubtDecision
	if err := httpserver.ReadJSON(w, r, &asked); err != nil {
		return nil, err
	}
	who, err := actor(r, asked.Reason)
	if err != nil {
		return nil, err
	}
	if asked.Outcome != OutcomeHappened && asked.Outcome != OutcomeAgain {
		return nil, badRequest("bad_outcome", "the outcome is happened or again")
	}
	if a.cfg.Own.Doubts.Settle == nil {
		return nil, ErrNoDoubt
	}
	err = a.cfg.Own.Doubts.Settle(r.Context(), asked.ID, asked.Outcome == OutcomeHappened, who)
	return Changed{Changed: 1}, err
}

// Doubts returns a page of effects of which nobody knows whether they happened.
// after is Next of the page before.
func (c *Client) Doubts(ctx context.Context, after string, limit int) (Page[Doubt], error) {
	q := query{}
	q.text("after", after)
	q.number("limit", int64(limit))
	return get[Page[Doubt]](ctx, c, "/ops/doubts", q)
}

// SettleDoubt ends one by a person's word.
func (c *Client) SettleDoubt(ctx context.Context, d DoubtDecision) error {
	_, err := post[Changed](ctx, c, "/ops/doubts/settle", d)
	return err
}
