package opsapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
)

func (a *API) deadLetters(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	limit, ids := p.limit(), p.text("ids")
	state := p.oneOf("state", "open", "retrying", "parked", "unresolved", "resolved", "discarded")
	filter := messaging.FailureFilter{Consumer: p.text("consumer"), State: state, Code: p.text("code"),
		AggregateType: p.text("aggregate_type"), AggregateID: p.text("aggregate_id"), EventID: p.uuid("event_id"),
		After: p.int("after", 0), Limit: limit + 1}
	if err := p.end(); err != nil {
		return nil, err
	}
	if ids != "" {
		var err error
		if filter.IDs, err = parseIDs(strings.Split(ids, ",")); err != nil {
			return nil, err
		}
	}
	list, err := a.desk.List(r.Context(), filter)
	if err != nil {
		return nil, err
	}
	return newPage(list, limit, func(d messaging.DeadLetter) string { return formatID(d.FailureID) }), nil
}

func parseIDs(given []string) ([]int64, error) {
	ids := make([]int64, len(given))
	for i, text := range given {
		var err error
		if ids[i], err = parseID(text); err != nil {
			return nil, badRequest("bad_id", "an id is a whole number here")
		}
	}
	return ids, bounded(len(ids))
}

func (a *API) deadLetterGroups(_ http.ResponseWriter, r *http.Request) (any, error) {
	groups, err := a.desk.Groups(r.Context())
	if err != nil {
		return nil, err
	}
	return newPage(groups, len(groups), nil), nil
}

func (a *API) deadLetter(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	detail, err := a.desk.Show(r.Context(), id)
	if err != nil {
		return nil, err
	}
	return FailureDetail{detail, mask(detail.Payload), len(detail.Payload)}, nil
}

func pathID(r *http.Request) (int64, error) {
	id, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return 0, badRequest("bad_id", "an id is a whole number here")
	}
	return id, nil
}

func (a *API) revealDeadLetter(w http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	who, err := readReason(w, r)
	if err != nil {
		return nil, err
	}
	detail, err := a.desk.Reveal(r.Context(), id, who)
	switch {
	case err != nil:
		return nil, err
	case detail.PayloadState != "":
		return nil, &httpserver.Error{Status: http.StatusGone, Code: "payload_gone", Detail: "the payload cannot be shown: " + detail.PayloadState}
	case json.Valid(detail.Payload):
		return FailurePayload{Event: detail.Payload}, nil
	default:
		return FailurePayload{Raw: detail.Payload}, nil
	}
}

// readReason reads a body that holds a reason, or none and the header does.
func readReason(w http.ResponseWriter, r *http.Request) (messaging.Actor, error) {
	var body Reason
	if r.ContentLength != 0 {
		if err := httpserver.ReadJSON(w, r, &body); err != nil {
			return messaging.Actor{}, err
		}
	}
	return actor(r, body.Reason)
}

func (a *API) retryDeadLetters(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.changeDeadLetters(w, r, a.desk.Retry)
}

func (a *API) discardDeadLetters(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.changeDeadLetters(w, r, a.desk.Discard)
}

type changeFailures func(context.Context, messaging.FailureFilter, messaging.Actor) (int, error)

// changeDeadLetters acts on a selection. One that goes by cause or consumer
// takes dead letters only, and not what the consumer is still trying by
// itself; so repeated calls come to an end.
func (a *API) changeDeadLetters(w http.ResponseWriter, r *http.Request, change changeFailures) (any, error) {
	var asked FailureSelection
	if err := httpserver.ReadJSON(w, r, &asked); err != nil {
		return nil, err
	}
	who, err := actor(r, asked.Reason)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(asked.Limit, maxPage)
	if limit < 1 || limit > maxPage {
		return nil, badRequest("bad_limit", "limit must be from 1 to %d", maxPage)
	}
	filter := messaging.FailureFilter{Consumer: asked.Consumer, Code: asked.Code, AggregateType: asked.AggregateType,
		AggregateID: asked.AggregateID, EventID: asked.EventID, State: "open", Limit: limit}
	if len(asked.IDs) > 0 {
		filter.State = "unresolved"
		if filter.IDs, err = parseIDs(asked.IDs); err != nil {
			return nil, err
		}
	}
	n, err := change(r.Context(), filter, who)
	return Changed{n, n == limit}, err
}

func (a *API) fixDeadLetter(w http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r)
	if err != nil {
		return nil, err
	}
	var asked Fix
	if err := httpserver.ReadJSON(w, r, &asked); err != nil {
		return nil, err
	}
	who, err := actor(r, asked.Reason)
	if err != nil {
		return nil, err
	}
	event, err := a.desk.Fix(r.Context(), id, asked.Event, who)
	return Fixed{event}, err
}
