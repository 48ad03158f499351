package opsapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
)

// maxKey bounds what may be asked about: ids are short.
const maxKey = messaging.MaxIDBytes

// evidence tells everything that this database knows about a key: an id of
// business, of a customer, of an aggregate of this service, or of an event.
func (a *API) evidence(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	key := p.text("key")
	if err := p.end(); err != nil {
		return nil, err
	}
	if key == "" || len(key) > maxKey {
		return nil, badRequest("bad_key", "key must have 1 to %d bytes", maxKey)
	}
	e := Evidence{Service: a.cfg.Service, Consumers: a.consumerInfos()}
	if err := a.cfg.Pool.QueryRow(r.Context(), `SELECT clock_timestamp()`).Scan(&e.Now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	err := a.collect(r.Context(), &e, key)
	return e, err
}

func (a *API) collect(ctx context.Context, e *Evidence, key string) error {
	event, _ := uuid.Parse(key) // a key that is none stays uuid.Nil
	aggregates := []string{key}
	if event != uuid.Nil {
		var err error
		if aggregates, err = a.aggregatesOf(ctx, event); err != nil {
			return err
		}
	}
	for _, aggregate := range slices.Clone(aggregates) {
		own, err := a.own(ctx, aggregate)
		if err != nil {
			return err
		}
		e.Keys = appendNew(e.Keys, own.Keys...)
		e.Effects = append(e.Effects, own.Effects...)
		aggregates = appendNew(aggregates, own.Aggregates...)
	}
	if event != uuid.Nil && len(e.Keys) == 0 { // a consumer's inbox knows what the event is about, though nothing came of it
		e.Keys = appendNew(e.Keys, aggregates...)
	}
	if err := a.collectEvents(ctx, e, aggregates); err != nil {
		return err
	}
	return a.collectActions(ctx, e, event)
}

func (a *API) own(ctx context.Context, key string) (OwnEvidence, error) {
	if a.cfg.Own.Evidence == nil {
		return OwnEvidence{}, nil
	}
	return a.cfg.Own.Evidence(ctx, key)
}

const sqlAggregatesOf = `
SELECT aggregate_id FROM message_outbox WHERE event_id = $1
 UNION
SELECT i.aggregate_id FROM consumer_lease l JOIN message_inbox i ON i.consumer = l.consumer AND i.event_id = $1
 UNION
SELECT aggregate_id FROM message_failure WHERE (event_id = $1 OR replaced_by = $1) AND aggregate_id <> ''`

// aggregatesOf returns what an event is about, whether this database staged it
// or received it.
func (a *API) aggregatesOf(ctx context.Context, event uuid.UUID) ([]string, error) {
	rows, err := a.cfg.Pool.Query(ctx, sqlAggregatesOf, event)
	if err != nil {
		return nil, fmt.Errorf("look up event: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look up event: %w", err)
	}
	return ids, nil
}

// collectEvents asks for all aggregates at once: an order that was refunded in
// many parts has as many entries in the ledger, each an aggregate of its own.
func (a *API) collectEvents(ctx context.Context, e *Evidence, aggregates []string) (err error) {
	if len(aggregates) == 0 {
		return nil
	}
	if e.Staged, err = a.history.Staged(ctx, aggregates...); err != nil {
		return err
	}
	if e.Seen, err = a.history.Seen(ctx, aggregates); err != nil {
		return err
	}
	e.Failures, err = a.desk.Of(ctx, aggregates)
	return err
}

const sqlReplayedEvents = `
SELECT r.replay_id, r.consumer, i.event_id, r.state, i.expected, i.result, i.done_at
  FROM message_replay_item i
  JOIN message_replay r ON r.replay_id = i.replay_id
 WHERE i.event_id = ANY($1::uuid[])
 ORDER BY r.created_at, i.position LIMIT 1000`

// collectActions adds what people did to what was found.
func (a *API) collectActions(ctx context.Context, e *Evidence, asked uuid.UUID) error {
	var targets []string
	events := map[uuid.UUID]bool{}
	if asked != uuid.Nil {
		events[asked] = true
	}
	for _, f := range e.Failures {
		targets = append(targets, fmt.Sprintf("failure %d", f.FailureID))
		if f.EventID != nil {
			events[*f.EventID] = true
		}
	}
	for _, f := range e.Effects {
		targets = append(targets, DoubtTarget(f.ID))
		if f.What == EffectException {
			targets = append(targets, "exception "+f.ID)
		}
	}
	for _, s := range e.Staged {
		events[s.EventID] = true
	}
	for _, s := range e.Seen {
		events[s.EventID] = true
	}
	ids, texts := make([]uuid.UUID, 0, len(events)), make([]string, 0, len(events))
	for id := range events {
		ids, texts = append(ids, id), append(texts, id.String())
	}
	rows, err := a.cfg.Pool.Query(ctx, sqlReplayedEvents, ids)
	if err == nil {
		e.Replays, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ReplayedEvent])
	}
	if err != nil {
		return fmt.Errorf("read replays: %w", err)
	}
	for _, r := range e.Replays {
		if target := "replay " + r.ReplayID.String(); !slices.Contains(targets, target) {
			targets = append(targets, target)
		}
	}
	onTargets, err := a.history.ActionsOn(ctx, targets...)
	if err != nil {
		return err
	}
	onEvents, err := a.history.ActionsOnEvents(ctx, texts...)
	e.Actions = append(onTargets, onEvents...)
	return err
}

func appendNew(list []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
