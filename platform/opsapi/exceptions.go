package opsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
)

// An Exception is something that came from outside of the shop, that the rules
// of a service refuse, and that must not be forgotten: a payment of the wrong
// amount. It is no event, so it cannot be replayed; a person settles it.
type Exception struct {
	ExceptionID int64             `json:"exception_id,string"`
	State       string            `json:"state"`  // open, held, applied or settled
	Reason      string            `json:"reason"` // a stable code
	Says        string            `json:"says"`
	Kind        string            `json:"kind"` // what was announced: payment.succeeded
	Key         string            `json:"key"`  // the business key that it names, not necessarily a known one
	About       map[string]string `json:"about,omitempty"`
	Occurrences int64             `json:"occurrences,string"`
	FirstSeenAt time.Time         `json:"first_seen_at"`
	LastSeenAt  time.Time         `json:"last_seen_at"`
	SettledAt   *time.Time        `json:"settled_at"`
}

// An ExceptionDetail is one exception with what people did to it. Masked shows
// how the announcement is made without any of its values; it is absent once the
// announcement has been erased.
type ExceptionDetail struct {
	Exception
	Masked  json.RawMessage    `json:"payload_masked,omitempty"`
	Bytes   int                `json:"payload_bytes"`
	Actions []messaging.Action `json:"actions"`
}

// ExceptionFilter selects exceptions. State is one state, "waiting" for open
// and held, or empty for all.
type ExceptionFilter struct {
	State string
	Key   string
	After int64 // only with a larger id
	Limit int
}

// ExceptionSelection names exceptions to settle, and says why.
type ExceptionSelection struct {
	IDs    []string `json:"ids"`
	Reason string   `json:"reason,omitempty"`
}

// An ExceptionDesk is what a service lets be done about its exceptions. Either
// all of its functions are nil, for a service that has none, or none is.
type ExceptionDesk struct {
	List func(ctx context.Context, f ExceptionFilter) ([]Exception, error)

	// Show returns one with its announcement as received, nil if that was
	// erased; or ErrNoException.
	Show func(ctx context.Context, id int64) (Exception, []byte, error)

	// Settle ends what of the ids waits, and records who did it and why in the
	// same transaction under [ExceptionTarget]. It returns how many that were.
	Settle func(ctx context.Context, ids []int64, who messaging.Actor) (int, error)
}

// ErrNoException: there is no exception with this id.
var ErrNoException = errors.New("there is no exception with this id")

// EffectException is What of an effect that is an exception, with its id.
const EffectException = "payment_exception"

// ExceptionTarget names an exception in the record of actions.
func ExceptionTarget(id int64) string { return fmt.Sprintf("exception %d", id) }

func (a *API) exceptions(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	limit := p.limit()
	state := p.oneOf("state", "waiting", "open", "held", "applied", "settled")
	filter := ExceptionFilter{State: state, Key: p.text("key"), After: p.int("after", 0), Limit: limit + 1}
	if err := p.end(); err != nil {
		return nil, err
	}
	if a.cfg.Own.Exceptions.List == nil {
		return Page[Exception]{Items: []Exception{}}, nil
	}
	list, err := a.cfg.Own.Exceptions.List(r.Context(), filter)
	if err != nil {
		return nil, err
	}
	return newPage(list, limit, func(e Exception) string { return formatID(e.ExceptionID) }), nil
}

func (a *API) exception(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	if a.cfg.Own.Exceptions.Show == nil {
		return nil, ErrNoException
	}
	e, payload, err := a.cfg.Own.Exceptions.Show(r.Context(), id)
	if err != nil {
		return nil, err
	}
	actions, err := a.history.ActionsOn(r.Context(), ExceptionTarget(id))
	return ExceptionDetail{e, mask(payload), len(payload), actions}, err
}

func (a *API) settleExceptions(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked ExceptionSelection
	if err := httpserver.ReadJSON(w, r, &asked); err != nil {
		return nil, err
	}
	who, err := actor(r, asked.Reason)
	if err != nil {
		return nil, err
	}
	if len(asked.IDs) == 0 {
		return nil, badRequest("ids_missing", "name the exceptions to settle, as ids")
	}
	ids, err := parseIDs(asked.IDs)
	if err != nil {
		return nil, err
	}
	if a.cfg.Own.Exceptions.Settle == nil {
		return nil, ErrNoException
	}
	n, err := a.cfg.Own.Exceptions.Settle(r.Context(), ids, who)
	return Changed{Changed: n}, err
}

// Exceptions returns a page of exceptions, the oldest first. after is Next of
// the page before.
func (c *Client) Exceptions(ctx context.Context, state, key, after string, limit int) (Page[Exception], error) {
	q := query{}
	q.text("state", state)
	q.text("key", key)
	q.text("after", after)
	q.number("limit", int64(limit))
	return get[Page[Exception]](ctx, c, "/ops/exceptions", q)
}

// Exception returns one with its history; the announcement is masked.
func (c *Client) Exception(ctx context.Context, id string) (ExceptionDetail, error) {
	return get[ExceptionDetail](ctx, c, "/ops/exceptions/"+url.PathEscape(id), nil)
}

// SettleExceptions ends exceptions by a person's word.
func (c *Client) SettleExceptions(ctx context.Context, s ExceptionSelection) (Changed, error) {
	return post[Changed](ctx, c, "/ops/exceptions/settle", s)
}
