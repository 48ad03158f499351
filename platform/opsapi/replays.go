package opsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/strictjson"
)

func (a *API) listReplays(_ http.ResponseWriter, r *http.Request) (any, error) {
	replays, err := a.replays.List(r.Context())
	if err != nil {
		return nil, err
	}
	return newPage(replays, len(replays), nil), nil
}

func (a *API) showReplay(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := replayID(r)
	if err != nil {
		return nil, err
	}
	return a.replays.Show(r.Context(), id)
}

func replayID(r *http.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(chi.URLParam(r, "id"))
	if err != nil {
		return uuid.Nil, badRequest("bad_id", "the id of a replay is a UUID")
	}
	return id, nil
}

// Replay makes a replay and returns its plan. It is what a request does, for
// whoever runs an API on a copy of a database.
func (a *API) Replay(ctx context.Context, asked ReplayRequest, who messaging.Actor) (uuid.UUID, ReplayPlan, error) {
	c, req, err := a.prepare(ctx, asked)
	if err != nil {
		return uuid.Nil, ReplayPlan{}, err
	}
	req.Actor = who
	id, plan, err := c.CreateReplay(ctx, req)
	return id, newReplayPlan(id, plan), translate(err)
}

// planReplay gives no reason and leaves no trace: it only looks.
func (a *API) planReplay(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked ReplayRequest
	if err := httpserver.ReadJSON(w, r, &asked); err != nil {
		return nil, err
	}
	c, req, err := a.prepare(r.Context(), asked)
	if err != nil {
		return nil, err
	}
	plan, err := c.PlanReplay(r.Context(), req)
	return newReplayPlan(uuid.Nil, plan), err
}

func (a *API) createReplay(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked ReplayRequest
	if err := httpserver.ReadJSON(w, r, &asked); err != nil {
		return nil, err
	}
	who, err := actor(r, asked.Reason)
	if err != nil {
		return nil, err
	}
	_, plan, err := a.Replay(r.Context(), asked, who)
	return plan, err
}

// prepare finds the consumer of a request and fetches the events that it
// chooses.
func (a *API) prepare(ctx context.Context, asked ReplayRequest) (*messaging.Consumer, messaging.ReplayRequest, error) {
	c, known := a.consumers[asked.Consumer]
	if !known {
		return nil, messaging.ReplayRequest{}, &httpserver.Error{Status: http.StatusNotFound, Code: "no_consumer",
			Detail: "this service has no such consumer; GET /ops/service lists them"}
	}
	if asked.PerSecond < 0 || asked.PerSecond > 10_000 {
		return nil, messaging.ReplayRequest{}, badRequest("bad_rate", "per_second must be from 1 to 10000, or absent for 100")
	}
	for _, t := range []time.Time{asked.From.Since, asked.From.Until} {
		if !t.IsZero() && !strictjson.Storable(t) {
			return nil, messaging.ReplayRequest{}, badRequest("bad_time", "since and until must be times such as 2026-03-01T14:02:00Z")
		}
	}
	events, err := a.choose(ctx, c, asked.From)
	if err != nil {
		return nil, messaging.ReplayRequest{}, err
	}
	if len(events) == 0 {
		return nil, messaging.ReplayRequest{}, &httpserver.Error{Status: http.StatusUnprocessableEntity, Code: "nothing_selected",
			Detail: "no event matches"}
	}
	filter, err := json.Marshal(asked.From)
	if err != nil {
		return nil, messaging.ReplayRequest{}, fmt.Errorf("encode selection: %w", err)
	}
	return c, messaging.ReplayRequest{Source: asked.From.Source, Filter: filter, Events: events, AllowExternal: asked.AllowExternal,
		PerSecond: asked.PerSecond}, nil
}

// moveReplay makes a handler of one of the moves of a replay.
func (a *API) moveReplay(move func(context.Context, uuid.UUID, messaging.Actor) error) func(http.ResponseWriter, *http.Request) (any, error) {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		id, err := replayID(r)
		if err != nil {
			return nil, err
		}
		who, err := readReason(w, r)
		if err != nil {
			return nil, err
		}
		if err := move(r.Context(), id, who); err != nil {
			return nil, err
		}
		return a.replays.Show(r.Context(), id)
	}
}
