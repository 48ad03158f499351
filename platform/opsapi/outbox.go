package opsapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
)

// sqlReach goes by months: what retention has taken off ends where the newest
// row of months begins that lacks none until now.
const sqlReach = `
WITH months AS (
	SELECT i.inhparent AS parent, to_date(right(c.relname, 7), 'YYYY_MM') AS month
	  FROM pg_inherits i
	  JOIN pg_class c ON c.oid = i.inhrelid
	 WHERE i.inhparent IN ('message_outbox'::regclass, 'message_outbox_publication'::regclass, 'message_inbox'::regclass)
	   AND c.relname ~ '_[0-9]{4}_[0-9]{2}$'
)
SELECT clock_timestamp(), coalesce(max(m.month), 'epoch')::timestamp AT TIME ZONE 'UTC'
  FROM months m
 WHERE m.month <= now() AT TIME ZONE 'UTC'
   AND NOT EXISTS (SELECT FROM months b WHERE b.parent = m.parent AND b.month = m.month - interval '1 month')`

func (a *API) service(_ http.ResponseWriter, r *http.Request) (any, error) {
	info := ServiceInfo{Service: a.cfg.Service, Consumers: a.consumerInfos()}
	if err := a.cfg.Pool.QueryRow(r.Context(), sqlReach).Scan(&info.Now, &info.KeptSince); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	return info, nil
}

func (a *API) consumerInfos() []ConsumerInfo {
	infos := []ConsumerInfo{}
	for _, c := range a.cfg.Consumers {
		sub := c.Subscription()
		info := ConsumerInfo{Name: sub.Durable, Kinds: []string{}, Owner: a.cfg.Flags.OpsOwner, Runbook: a.cfg.Flags.OpsRunbook}
		for _, kind := range sub.Kinds {
			info.Kinds = append(info.Kinds, kind.String())
		}
		infos = append(infos, info)
	}
	return infos
}

func (a *API) backlog(_ http.ResponseWriter, r *http.Request) (any, error) {
	b, err := a.history.Backlog(r.Context())
	if err != nil {
		return nil, err
	}
	return newBacklog(b), nil
}

// MaxUnfinished is how far Own.Unfinished counts. More than that is no other
// answer, and a service may have millions.
const MaxUnfinished = 10_000

// drained answers whoever wants to take the service or its database away: is
// there anything that was begun and has not ended? What waits for a person is
// unfinished, too. It says nothing about what others have for this service: that
// is on the stream.
func (a *API) drained(_ http.ResponseWriter, r *http.Request) (any, error) {
	b, err := a.history.Backlog(r.Context())
	if err != nil {
		return nil, err
	}
	staged, failures := b.Pending+b.HeldWaiting+b.HeldFailed, 0
	for _, c := range b.Consumers {
		failures += c.Retrying + c.Parked + c.Gaps + c.DeadLetters
	}
	var own int64
	if a.cfg.Own.Unfinished != nil {
		if own, err = a.cfg.Own.Unfinished(r.Context()); err != nil {
			return nil, err
		}
	}
	if staged+failures > 0 || own > 0 {
		return nil, &httpserver.Error{Status: http.StatusServiceUnavailable, Code: "not_drained",
			Detail: fmt.Sprintf("%d events are staged and not published, %d failures are not resolved, %d tasks of the service's own are not ended",
				staged, failures, own)}
	}
	return struct {
		Drained bool `json:"drained"`
	}{true}, nil
}

func (a *API) outbox(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	id, aggregate, limit := p.uuid("event_id"), p.text("aggregate_id"), p.limit()
	state := p.oneOf("state", "pending", "publishing", "published", "failed")
	filter := messaging.StagedFilter{Kind: p.text("kind"), State: state, Since: p.time("since", time.Time{}),
		Until: p.time("until", time.Time{}), Before: p.uuid("before"), Limit: limit + 1}
	if err := p.end(); err != nil {
		return nil, err
	}
	var events []messaging.StagedEvent
	var err error
	switch {
	case id != uuid.Nil:
		events, err = a.history.StagedEventByID(r.Context(), id)
	case aggregate != "":
		events, err = a.history.Staged(r.Context(), aggregate)
		limit = len(events) // all there are: an aggregate has few
	default:
		events, err = a.history.StagedPage(r.Context(), filter)
	}
	if err != nil {
		return nil, err
	}
	return newPage(events, limit, func(e messaging.StagedEvent) string { return e.EventID.String() }), nil
}

const (
	sqlStagedIDs = `SELECT event_id FROM message_outbox WHERE event_id = ANY($1::uuid[])`

	sqlStagedVersions = `
SELECT DISTINCT v.id, v.version
  FROM unnest($1::text[], $2::bigint[]) AS v(id, version)
  JOIN message_outbox o ON o.aggregate_id = v.id AND o.aggregate_version = v.version`
)

func (a *API) outboxLookup(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked OutboxLookup
	if err := httpserver.ReadJSON(w, r, &asked); err != nil {
		return nil, err
	}
	if err := bounded(len(asked.EventIDs) + len(asked.Versions)); err != nil {
		return nil, err
	}
	found := OutboxFound{EventIDs: []uuid.UUID{}, Versions: []EventRef{}}
	rows, err := a.cfg.Pool.Query(r.Context(), sqlStagedIDs, asked.EventIDs)
	if err == nil {
		found.EventIDs, err = pgx.AppendRows(found.EventIDs, rows, pgx.RowTo[uuid.UUID])
	}
	if err != nil {
		return nil, fmt.Errorf("look up events: %w", err)
	}
	ids, versions := make([]string, len(asked.Versions)), make([]int64, len(asked.Versions))
	for i, v := range asked.Versions {
		ids[i], versions[i] = v.AggregateID, v.AggregateVersion
	}
	rows, err = a.cfg.Pool.Query(r.Context(), sqlStagedVersions, ids, versions)
	if err == nil {
		found.Versions, err = pgx.AppendRows(found.Versions, rows, func(row pgx.CollectableRow) (v EventRef, err error) {
			err = row.Scan(&v.AggregateID, &v.AggregateVersion)
			return v, err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look up versions: %w", err)
	}
	return found, nil
}

// bounded keeps the lists of one request within what one statement should take.
func bounded(n int) error {
	if n > maxPage {
		return badRequest("too_many", "at most %d at a time", maxPage)
	}
	return nil
}

func (a *API) between(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	aggregateType, aggregateID, after, before := p.text("aggregate_type"), p.text("aggregate_id"), p.int("after", 0), p.int("before", 0)
	switch err := p.end(); {
	case err != nil:
		return nil, err
	case aggregateID == "" || before-after > maxPage:
		return nil, badRequest("bad_range", "aggregate_id is missing, or more than %d versions are asked for", maxPage)
	}
	events, complete, err := a.history.Between(r.Context(), aggregateType, aggregateID, after, before)
	return Between{events, complete}, err
}

func (a *API) payloads(w http.ResponseWriter, r *http.Request) (any, error) {
	asked, err := readIDs(w, r)
	if err != nil {
		return nil, err
	}
	events, err := a.history.Payloads(r.Context(), asked.EventIDs)
	return Payloads{events}, err
}

func readIDs(w http.ResponseWriter, r *http.Request) (ids EventIDs, err error) {
	if err := httpserver.ReadJSON(w, r, &ids); err != nil {
		return ids, err
	}
	if len(ids.EventIDs) == 0 {
		return ids, badRequest("ids_missing", "event_ids names no event")
	}
	return ids, bounded(len(ids.EventIDs))
}

func (a *API) republish(w http.ResponseWriter, r *http.Request) (any, error) {
	asked, err := readIDs(w, r)
	if err != nil {
		return nil, err
	}
	who, err := actor(r, asked.Reason)
	if err != nil {
		return nil, err
	}
	n, err := a.history.Republish(r.Context(), asked.EventIDs, who)
	return Changed{Changed: n}, err
}

func (a *API) release(w http.ResponseWriter, r *http.Request) (any, error) {
	asked, err := readIDs(w, r)
	if err != nil {
		return nil, err
	}
	who, err := actor(r, asked.Reason)
	if err != nil {
		return nil, err
	}
	n, err := a.history.ReleaseHeld(r.Context(), asked.EventIDs, who)
	return Changed{Changed: n}, err
}

func (a *API) inbox(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	aggregate, event := p.text("aggregate_id"), p.uuid("event_id")
	switch err := p.end(); {
	case err != nil:
		return nil, err
	case aggregate == "" && event == uuid.Nil:
		return nil, badRequest("filter_missing", "name an aggregate_id or an event_id")
	}
	var aggregates []string
	if aggregate != "" {
		aggregates = append(aggregates, aggregate)
	}
	var events []uuid.UUID
	if event != uuid.Nil {
		events = append(events, event)
	}
	seen, err := a.history.Seen(r.Context(), aggregates, events...)
	if err != nil {
		return nil, err
	}
	return newPage(seen, len(seen), nil), nil
}

func (a *API) inboxLookup(w http.ResponseWriter, r *http.Request) (any, error) {
	asked, err := readIDs(w, r)
	if err != nil {
		return nil, err
	}
	found := InboxFound{Seen: []messaging.SeenEvent{}, Failures: []messaging.DeadLetter{}}
	seen, err := a.history.Seen(r.Context(), nil, asked.EventIDs...)
	if err != nil {
		return nil, err
	}
	found.Seen = append(found.Seen, seen...)
	failures, err := a.desk.Of(r.Context(), nil, asked.EventIDs...)
	found.Failures = append(found.Failures, failures...)
	return found, err
}

func (a *API) actions(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	before, limit := p.int("before", 0), p.limit()
	if err := p.end(); err != nil {
		return nil, err
	}
	actions, err := a.history.Actions(r.Context(), before, limit+1)
	if err != nil {
		return nil, err
	}
	return newPage(actions, limit, func(act messaging.Action) string { return formatID(act.ActionID) }), nil
}
