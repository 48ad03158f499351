package messaging

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/postgres"
)

// History reads what a database has recorded about events: the facts that it
// staged, where the broker stored them, what its consumers did with others',
// and what failed. It answers for this database alone.
type History struct{ pool *pgxpool.Pool }

// NewHistory returns the history of one database.
func NewHistory(pool *pgxpool.Pool) *History { return &History{pool} }

const sqlBetween = `
SELECT payload FROM message_outbox
 WHERE aggregate_type = $1 AND aggregate_id = $2 AND aggregate_version > $3 AND aggregate_version < $4
 ORDER BY aggregate_version, id`

const sqlExtent = `
SELECT coalesce(min(aggregate_version), 0), coalesce(max(aggregate_version), 0) FROM message_outbox WHERE aggregate_type = $1 AND aggregate_id = $2`

// Between returns the staged envelopes of an aggregate between two versions,
// both exclusive. complete says that this is all there ever was or will be: a
// later version is committed, so none of these can still come, and what is
// kept reaches back far enough, so none has been put away by retention. It is
// what answers a [Backfill].
func (h *History) Between(ctx context.Context, aggregateType, aggregateID string, after, before int64) (events [][]byte, complete bool, err error) {
	// The newest version first: events that commit between the two statements
	// are then returned and not called absent.
	var oldest, newest int64
	if err := h.pool.QueryRow(ctx, sqlExtent, aggregateType, aggregateID).Scan(&oldest, &newest); err != nil {
		return nil, false, fmt.Errorf("read newest version of %s: %w", aggregateID, err)
	}
	rows, err := h.pool.Query(ctx, sqlBetween, aggregateType, aggregateID, after, before)
	if err != nil {
		return nil, false, fmt.Errorf("read events of %s: %w", aggregateID, err)
	}
	events, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, false, fmt.Errorf("read events of %s: %w", aggregateID, err)
	}
	return events, newest >= before && oldest <= after+1, nil
}

// A StagedEvent is a fact of the outbox with what became of it. State is
// pending, publishing, published or failed.
type StagedEvent struct {
	EventID          uuid.UUID  `json:"event_id"`
	ID               int64      `json:"id,string"`
	Kind             string     `json:"kind"`
	AggregateType    string     `json:"aggregate_type"`
	AggregateID      string     `json:"aggregate_id"`
	AggregateVersion int64      `json:"aggregate_version,string"`
	Subject          string     `json:"subject"`
	CreatedAt        time.Time  `json:"created_at"`
	State            string     `json:"state"`
	Attempts         int        `json:"attempts"`
	AvailableAt      *time.Time `json:"available_at"` // when it may flow; nil once published, and for what only a person can release
	LastError        *string    `json:"last_error"`
	Relay            *string    `json:"relay"` // who holds its shard now
	Stream           *string    `json:"stream"`
	StreamSeq        *int64     `json:"stream_seq,string"`
	Duplicate        *bool      `json:"duplicate"`
	PublishedAt      *time.Time `json:"published_at"`
	PublishedBy      *string    `json:"published_by"`
}

const stagedColumns = `
SELECT event_id, id, kind, aggregate_type, aggregate_id, aggregate_version, subject, created_at, state, attempts,
       CASE WHEN isfinite(available_at) THEN available_at END AS available_at, last_error, nullif(relay, '') AS relay,
       stream, stream_seq, duplicate, published_at, published_by
  FROM message_outbox_state`

// Staged returns the facts about these aggregates, in order, at most 1000.
func (h *History) Staged(ctx context.Context, aggregateIDs ...string) ([]StagedEvent, error) {
	return h.staged(ctx, ` WHERE aggregate_id = ANY($1::text[]) ORDER BY id LIMIT 1000`, aggregateIDs)
}

// StagedEventByID returns one fact, or none.
func (h *History) StagedEventByID(ctx context.Context, id uuid.UUID) ([]StagedEvent, error) {
	return h.staged(ctx, ` WHERE event_id = $1`, id)
}

// A StagedFilter selects facts by what they are and when they were staged.
type StagedFilter struct {
	Kind   string // "OrderPaid.v1", or empty for all
	State  string // pending, publishing, published or failed, or empty for all
	Since  time.Time
	Until  time.Time // zero for no end
	Before uuid.UUID // only facts with a smaller event id: the last of the page before; zero for the first page
	Limit  int       // defaults to 100, at most 1001: one more than a page tells whether there is another
}

// StagedPage returns facts by event id, newest first. Event ids hold the time
// of their making, so a page never depends on the order of commits.
func (h *History) StagedPage(ctx context.Context, f StagedFilter) ([]StagedEvent, error) {
	setDefault(&f.Limit, 100)
	args := pgx.StrictNamedArgs{"since": f.Since, "limit": min(f.Limit, 1001)}
	// Ids tell the time of their making, by another clock than created_at; a day
	// is more than those differ, and lets the index and whole partitions out.
	where := ` WHERE created_at >= @since AND event_id >= message_uuid_floor(greatest(@since::timestamptz, '1970-01-02') - interval '1 day')`
	if !f.Until.IsZero() {
		where += ` AND created_at < @until AND event_id < message_uuid_floor(@until::timestamptz + interval '1 day')`
		args["until"] = f.Until
	}
	if f.Before != uuid.Nil {
		where += ` AND event_id < @before`
		args["before"] = f.Before
	}
	if f.Kind != "" {
		where += ` AND kind = @kind`
		args["kind"] = f.Kind
	}
	if f.State != "" {
		where += ` AND state = @state`
		args["state"] = f.State
		if f.State == "failed" { // few, among all that ever were
			where += ` AND event_id IN (SELECT event_id FROM message_outbox_held)`
		}
	}
	return h.staged(ctx, where+` ORDER BY event_id DESC LIMIT @limit`, args)
}

func (h *History) staged(ctx context.Context, where string, args ...any) ([]StagedEvent, error) {
	rows, err := h.pool.Query(ctx, stagedColumns+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read outbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[StagedEvent])
}

const sqlPayloads = `SELECT event_id, payload FROM message_outbox WHERE event_id = ANY($1::uuid[]) ORDER BY id`

// Payloads returns the envelopes of these events, as staged, oldest first.
func (h *History) Payloads(ctx context.Context, ids []uuid.UUID) ([][]byte, error) {
	rows, err := h.pool.Query(ctx, sqlPayloads, ids)
	if err != nil {
		return nil, fmt.Errorf("read payloads: %w", err)
	}
	var payloads [][]byte
	var id uuid.UUID
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &payload}, func() error {
		payloads = append(payloads, append([]byte(nil), payload...))
		return nil
	})
	return payloads, err
}

// A SeenEvent is what one consumer's inbox says about an event.
type SeenEvent struct {
	Consumer    string    `json:"consumer"`
	EventID     uuid.UUID `json:"event_id"`
	AggregateID string    `json:"aggregate_id"`
	ProcessedAt time.Time `json:"processed_at"`
	Result      string    `json:"result"`
}

// sqlSeen names the consumers, because the inbox's key begins with them:
// without that an event would be looked for in the whole table.
const sqlSeen = `
SELECT i.consumer, i.event_id, i.aggregate_id, i.processed_at, i.result
  FROM consumer_lease l
  JOIN message_inbox i ON i.consumer = l.consumer AND i.event_id = ANY($1::uuid[])
 UNION
SELECT consumer, event_id, aggregate_id, processed_at, result FROM message_inbox WHERE aggregate_id = ANY($2::text[])
 ORDER BY processed_at LIMIT 10000`

// Seen returns what this database's consumers have done with the events given,
// and with all others of the aggregates.
func (h *History) Seen(ctx context.Context, aggregateIDs []string, events ...uuid.UUID) ([]SeenEvent, error) {
	rows, err := h.pool.Query(ctx, sqlSeen, events, aggregateIDs)
	if err != nil {
		return nil, fmt.Errorf("read inbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[SeenEvent])
}

// RepublishLimit is the most events that one call of Republish takes.
const RepublishLimit = 1000

const sqlRepublish = `
INSERT INTO message_outbox_pending (shard, id, event_id)
SELECT o.shard, o.id, o.event_id FROM message_outbox o
 WHERE o.event_id = ANY($1::uuid[])
   AND NOT EXISTS (SELECT FROM message_outbox_held h WHERE h.shard = o.shard AND h.id = o.id)
ON CONFLICT (shard, id) DO NOTHING
RETURNING event_id`

// Republish puts facts that the broker has lost back into the queue, under
// their old ids and places, and records who did it and why. Consumers that had
// applied them see duplicates. It returns how many were queued; those that are
// in the queue already, or held, are not among them.
func (h *History) Republish(ctx context.Context, events []uuid.UUID, actor Actor) (queued int, err error) {
	if err := actor.check(); err != nil {
		return 0, err
	}
	if len(events) > RepublishLimit {
		return 0, fmt.Errorf("republish %d events: at most %d at a time", len(events), RepublishLimit)
	}
	err = postgres.InTx(ctx, h.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlRepublish, events)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		queued = len(ids)
		if queued == 0 {
			return nil
		}
		return act(ctx, tx, actor, "republish", "outbox", map[string]any{"asked": len(events)}, map[string]any{"queued": ids})
	})
	if err != nil {
		return 0, fmt.Errorf("republish: %w", err)
	}
	return queued, nil
}

const sqlReleaseFailed = `
UPDATE message_outbox_held SET state = 'backoff', available_at = clock_timestamp()
 WHERE event_id = ANY($1::uuid[]) AND state = 'failed'`

// ReleaseHeld lets events that the broker had refused be tried again, with
// what stands behind them.
func (h *History) ReleaseHeld(ctx context.Context, events []uuid.UUID, actor Actor) (released int, err error) {
	if err := actor.check(); err != nil {
		return 0, err
	}
	err = postgres.InTx(ctx, h.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlReleaseFailed, events)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		released = int(tag.RowsAffected())
		return act(ctx, tx, actor, "release", "outbox", map[string]any{"state": "failed"}, map[string]any{"events": events})
	})
	if err != nil {
		return 0, fmt.Errorf("release held events: %w", err)
	}
	return released, nil
}

// Backlog is how much of a database's messaging is unfinished, and for how long.
type Backlog struct {
	Pending       int               `json:"pending"`        // in the queue
	OldestPending time.Duration     `json:"oldest_pending"` // 0 if nothing is
	HottestShard  int               `json:"hottest_shard"`  // the shard with the longest queue
	HottestCount  int               `json:"hottest_count"`
	HeldFailed    int               `json:"held_failed"`  // refused by the broker: a person must act
	HeldWaiting   int               `json:"held_waiting"` // backing off, or behind a held one
	Relays        int               `json:"relays"`       // alive
	Consumers     []ConsumerBacklog `json:"consumers"`
}

// ConsumerBacklog is the unfinished part of one consumer.
type ConsumerBacklog struct {
	Consumer      string        `json:"consumer"`
	Active        string        `json:"active"` // the replica that has the place, or empty
	Retrying      int           `json:"retrying"`
	Parked        int           `json:"parked"`
	DeadLetters   int           `json:"dead_letters"`
	Overdue       int           `json:"overdue"`
	Gaps          int           `json:"gaps"`
	OldestFailure time.Duration `json:"oldest_failure"`
}

// Every count has a bound, so that the question stays cheap when the answer is
// bad: 20 000 rows of each shard, and the first row of each for its age.
const sqlBacklog = `
WITH shard AS MATERIALIZED (
	SELECT s.n AS shard, q.pending, f.available_at
	  FROM generate_series(0, 63) AS s(n)
	 CROSS JOIN LATERAL (SELECT count(*)::int AS pending FROM (SELECT FROM message_outbox_pending p WHERE p.shard = s.n LIMIT 20000) r) q
	  LEFT JOIN LATERAL (SELECT p.available_at FROM message_outbox_pending p WHERE p.shard = s.n ORDER BY p.id LIMIT 1) f ON true
)
SELECT (SELECT coalesce(sum(pending), 0)::int FROM shard),
       (SELECT greatest(coalesce(max(clock_timestamp() - available_at), '0'), '0') FROM shard),
       (SELECT shard FROM shard ORDER BY pending DESC, shard LIMIT 1),
       (SELECT max(pending) FROM shard),
       (SELECT count(*)::int FROM message_outbox_held WHERE state = 'failed'),
       (SELECT count(*)::int FROM message_outbox_held WHERE state <> 'failed'),
       (SELECT count(*)::int FROM relay_member WHERE seen_until > clock_timestamp())`

const sqlConsumerBacklog = `
SELECT l.consumer, CASE WHEN l.lease_until > clock_timestamp() THEN l.owner ELSE '' END AS active,
       (count(*) FILTER (WHERE f.state = 'retrying'))::int AS retrying,
       (count(*) FILTER (WHERE f.state = 'parked' AND f.error_code <> 'version_gap'))::int AS parked,
       (count(*) FILTER (WHERE f.state = 'open'))::int AS dead_letters,
       (count(*) FILTER (WHERE f.state = 'open' AND f.due_at < clock_timestamp()))::int AS overdue,
       (count(*) FILTER (WHERE f.state = 'parked' AND f.error_code = 'version_gap'))::int AS gaps,
       coalesce(max(clock_timestamp() - f.first_failed_at), '0') AS oldest_failure
  FROM consumer_lease l
  LEFT JOIN message_failure f ON f.consumer = l.consumer AND f.state IN ('retrying', 'parked', 'open')
 GROUP BY l.consumer, l.lease_until, l.owner
 ORDER BY l.consumer`

// Backlog returns how much is unfinished now.
func (h *History) Backlog(ctx context.Context) (Backlog, error) {
	var b Backlog
	err := h.pool.QueryRow(ctx, sqlBacklog).Scan(&b.Pending, &b.OldestPending, &b.HottestShard, &b.HottestCount, &b.HeldFailed, &b.HeldWaiting, &b.Relays)
	if err != nil {
		return b, fmt.Errorf("read backlog: %w", err)
	}
	rows, err := h.pool.Query(ctx, sqlConsumerBacklog)
	if err != nil {
		return b, fmt.Errorf("read backlog of consumers: %w", err)
	}
	b.Consumers, err = pgx.CollectRows(rows, pgx.RowToStructByName[ConsumerBacklog])
	return b, err
}
