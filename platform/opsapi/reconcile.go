package opsapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/httpserver"
)

func readWindow(r *http.Request) (Window, error) {
	p := params{r: r}
	w := Window{Since: p.time("since", time.Time{}), Until: p.time("until", time.Now()), After: p.text("after"), Limit: p.limit()}
	if err := p.end(); err != nil {
		return Window{}, err
	}
	if w.Since.IsZero() {
		return Window{}, badRequest("since_missing", "since says how far back to look")
	}
	return w, nil
}

// facts lists what the business tables hold that must have been published, with
// what became of each event.
func (a *API) facts(_ http.ResponseWriter, r *http.Request) (any, error) {
	w, err := readWindow(r)
	if err != nil {
		return nil, err
	}
	if a.cfg.Own.Facts == nil {
		return Page[StagedFact]{Items: []StagedFact{}}, nil
	}
	limit := w.Limit
	w.Limit++
	facts, err := a.cfg.Own.Facts(r.Context(), w)
	if err != nil {
		return nil, err
	}
	page := newPage(facts, limit, func(f Fact) string { return f.Cursor })
	staged, err := a.staged(r.Context(), page.Items)
	return Page[StagedFact]{staged, page.Next}, err
}

// sqlStagedFacts finds each fact's event. An event that is neither in the queue
// nor held nor published is an orphan: no relay will ever see it.
const sqlStagedFacts = `
SELECT DISTINCT ON (f.n) f.n, o.event_id, coalesce(o.subject, ''), coalesce(b.stream, ''), coalesce(b.stream_seq, 0), b.published_at,
       CASE WHEN o.event_id IS NULL THEN 'unstaged'
            WHEN h.state = 'failed' THEN 'failed'
            WHEN h.event_id IS NOT NULL THEN 'held'
            WHEN p.event_id IS NOT NULL THEN 'queued' -- also if it was published, and is to be again
            WHEN b.event_id IS NOT NULL THEN 'published'
            ELSE 'orphan' END
  FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS f(kind, id, version, n)
  LEFT JOIN message_outbox o ON o.aggregate_id = f.id AND o.aggregate_version = f.version AND o.kind = f.kind
  LEFT JOIN message_outbox_publication b ON b.event_id = o.event_id
  LEFT JOIN message_outbox_pending p ON p.shard = o.shard AND p.id = o.id
  LEFT JOIN message_outbox_held h ON h.shard = o.shard AND h.id = o.id
 ORDER BY f.n, o.id`

func (a *API) staged(ctx context.Context, facts []Fact) ([]StagedFact, error) {
	kinds, ids, versions := make([]string, len(facts)), make([]string, len(facts)), make([]int64, len(facts))
	staged := make([]StagedFact, len(facts))
	for i, f := range facts {
		kinds[i], ids[i], versions[i] = f.Kind, f.AggregateID, f.AggregateVersion
		staged[i].Fact = f
	}
	rows, err := a.cfg.Pool.Query(ctx, sqlStagedFacts, kinds, ids, versions)
	if err != nil {
		return nil, fmt.Errorf("find the events of facts: %w", err)
	}
	var n, seq int64
	var event *uuid.UUID
	var subject, stream, state string
	var publishedAt *time.Time
	_, err = pgx.ForEachRow(rows, []any{&n, &event, &subject, &stream, &seq, &publishedAt, &state}, func() error {
		f := &staged[n-1]
		f.State, f.Subject, f.Stream, f.StreamSeq = state, subject, stream, uint64(seq)
		if event != nil {
			f.EventID = *event
		}
		if publishedAt != nil {
			f.PublishedAt = *publishedAt
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the events of facts: %w", err)
	}
	return staged, nil
}

// effects lists what was made here because of other services' events.
func (a *API) effects(_ http.ResponseWriter, r *http.Request) (any, error) {
	w, err := readWindow(r)
	if err != nil {
		return nil, err
	}
	if a.cfg.Own.Effects == nil {
		return Page[Effect]{Items: []Effect{}}, nil
	}
	limit := w.Limit
	w.Limit++
	effects, err := a.cfg.Own.Effects(r.Context(), w)
	if err != nil {
		return nil, err
	}
	page := newPage(effects, limit, func(e Effect) string { return e.Cursor })
	return page, a.markCorrections(r.Context(), page.Items)
}

const sqlCorrections = `SELECT replaced_by, failure_id FROM message_failure WHERE replaced_by = ANY($1::uuid[])`

// markCorrections names the dead letter of effects whose event a person made.
func (a *API) markCorrections(ctx context.Context, effects []Effect) error {
	places := map[uuid.UUID][]int{}
	var ids []uuid.UUID
	for i, e := range effects {
		if e.EventID != uuid.Nil {
			places[e.EventID] = append(places[e.EventID], i)
			ids = append(ids, e.EventID)
		}
	}
	rows, err := a.cfg.Pool.Query(ctx, sqlCorrections, ids)
	if err != nil {
		return fmt.Errorf("look for corrections: %w", err)
	}
	var event uuid.UUID
	var failure int64
	_, err = pgx.ForEachRow(rows, []any{&event, &failure}, func() error {
		for _, i := range places[event] {
			effects[i].Corrects = formatID(failure)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for corrections: %w", err)
	}
	return nil
}

func (a *API) effectsLookup(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked EventRefs
	if err := httpserver.ReadJSON(w, r, &asked); err != nil {
		return nil, err
	}
	if err := bounded(len(asked.Events)); err != nil {
		return nil, err
	}
	if a.cfg.Own.EffectsOf == nil { // not "none": whoever asks would take every event's effect for lost
		return nil, &httpserver.Error{Status: http.StatusNotImplemented, Code: "effects_not_told", Detail: "this service does not tell what effects its consumers have had"}
	}
	effects, err := a.cfg.Own.EffectsOf(r.Context(), asked.Events)
	if err != nil {
		return nil, err
	}
	return newPage(effects, len(effects), nil), nil
}

func (a *API) invariants(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := params{r: r}
	since := p.time("since", time.Now().Add(-24*time.Hour))
	if err := p.end(); err != nil {
		return nil, err
	}
	list, err := a.messagingInvariants(r.Context(), since)
	if err != nil {
		return nil, err
	}
	if a.cfg.Own.Invariants != nil {
		own, err := a.cfg.Own.Invariants(r.Context())
		if err != nil {
			return nil, err
		}
		list = append(list, own...)
	}
	return newPage(list, len(list), nil), nil
}

// settled is how old an event must be before it can be called an orphan: its
// transaction has committed all of it at once, but a relay may be between
// taking it off the queue and this statement's snapshot.
const settled = "10 seconds"

// A check is a statement that returns up to 20 offenders, each with the number
// of all.
type check struct {
	name, says, sql string
	args            func(since time.Time, consumers []string) []any
}

func noArgs(time.Time, []string) []any { return nil }

// bySince looks back by event id, and so by partition.
func bySince(since time.Time, _ []string) []any { return []any{since} }

func byConsumer(_ time.Time, consumers []string) []any { return []any{consumers} }

// messagingChecks are what must hold in every database with an outbox.
var messagingChecks = []check{
	{"one_event_per_version", "two events have the same version of one aggregate", `
SELECT min(event_id::text), count(*) OVER () FROM message_outbox
 WHERE event_id >= message_uuid_floor($1)
 GROUP BY aggregate_type, aggregate_id, aggregate_version HAVING count(*) > 1 LIMIT 20`, bySince},
	{InvariantNoOrphans, "events are neither published nor on their way: no relay will ever see them", `
SELECT o.event_id::text, count(*) OVER () FROM message_outbox o
 WHERE o.event_id >= message_uuid_floor($1) AND o.created_at < clock_timestamp() - interval '` + settled + `'
   AND NOT EXISTS (SELECT FROM message_outbox_publication b WHERE b.event_id = o.event_id)
   AND NOT EXISTS (SELECT FROM message_outbox_pending p WHERE p.shard = o.shard AND p.id = o.id)
   AND NOT EXISTS (SELECT FROM message_outbox_held h WHERE h.shard = o.shard AND h.id = o.id)
 LIMIT 20`, bySince},
	{"partitions_ahead", "a month that is near has no partition: events will be refused then, and orders with them", `
SELECT month.name, count(*) OVER ()
  FROM unnest(ARRAY['message_outbox', 'message_outbox_publication', 'message_inbox']) AS parent
 CROSS JOIN generate_series(0, 2) AS n
 CROSS JOIN LATERAL (SELECT parent || to_char(date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => n), '"_"YYYY"_"MM')) AS month(name)
 WHERE to_regclass(month.name) IS NULL
 ORDER BY month.name LIMIT 20`, noArgs},
	{"numbers_go_forward", "facts have higher numbers than the sequence gives: the database came without its sequences, and events can go out in the wrong order", `
SELECT o.event_id::text, count(*) OVER ()
  FROM (SELECT event_id, id FROM message_outbox WHERE event_id >= message_uuid_floor($1) ORDER BY event_id DESC LIMIT 1000) o
 WHERE o.id > (SELECT last_value FROM message_outbox_id_seq)
 LIMIT 20`, bySince},
	{"collation_is_unchanged", "the system sorts text in another way than when the indexes were built: they may miss rows, and let keys in twice", `
SELECT datname::text, count(*) OVER () FROM pg_database
 WHERE datname = current_database() AND datcollversion <> coalesce(pg_database_collation_actual_version(oid), '')`, noArgs},
	{"nothing_refused", "the broker refused events: they and what stands behind them wait for a person", `
SELECT event_id::text, count(*) OVER () FROM message_outbox_held
 WHERE state = 'failed' ORDER BY held_at LIMIT 20`, noArgs},
	{"no_overdue_dead_letters", "dead letters were not dealt with in time", `
SELECT failure_id::text, count(*) OVER () FROM message_failure
 WHERE state = 'open' AND due_at < clock_timestamp() ORDER BY due_at LIMIT 20`, noArgs},
	{"consumers_are_active", "consumers have no active replica: what they should read waits", `
SELECT c.name, count(*) OVER () FROM unnest($1::text[]) AS c(name)
 WHERE NOT EXISTS (SELECT FROM consumer_lease l WHERE l.consumer = c.name AND l.lease_until > clock_timestamp()) LIMIT 20`, byConsumer},
}

// InvariantNoOrphans is the name of the invariant whose offenders are ids of
// events that can be published again.
const InvariantNoOrphans = "no_orphans"

func (a *API) messagingInvariants(ctx context.Context, since time.Time) ([]Invariant, error) {
	consumers := slices.Sorted(maps.Keys(a.consumers))
	list := make([]Invariant, 0, len(messagingChecks))
	for _, c := range messagingChecks {
		inv, err := CheckInvariant(ctx, a.cfg.Pool, c.name, c.says, c.sql, c.args(since, consumers)...)
		if err != nil {
			return nil, err
		}
		list = append(list, inv)
	}
	return list, nil
}

// A Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// CheckInvariant runs a statement that returns offenders, some of them, each
// with the number of all. says is what is wrong if there are any.
func CheckInvariant(ctx context.Context, db Querier, name, says, sql string, args ...any) (Invariant, error) {
	inv := Invariant{Name: name, Holds: true, Says: "holds"}
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return inv, fmt.Errorf("check %s: %w", name, err)
	}
	var offender string
	_, err = pgx.ForEachRow(rows, []any{&offender, &inv.Count}, func() error {
		inv.Offenders = append(inv.Offenders, offender)
		return nil
	})
	if err != nil {
		return inv, fmt.Errorf("check %s: %w", name, err)
	}
	if inv.Count > 0 {
		inv.Holds, inv.Says = false, says
	}
	return inv, nil
}

// IDFloor returns the smallest id of the form prefix and 32 hex digits of a
// UUIDv7 that was made at t or later. Tables with such keys can be read by time
// without another index.
func IDFloor(prefix string, t time.Time) string {
	return fmt.Sprintf("%s%012x%020d", prefix, max(0, t.UnixMilli()), 0)
}
