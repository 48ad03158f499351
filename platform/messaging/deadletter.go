package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/postgres"
)

// DeadLetters is the workflow of what a database's consumers could not apply:
// look, try again, correct, or give up, each by a named person for a stated
// reason. It only changes rows; the consumer itself does the work, through its
// inbox, so no action here can repeat an effect.
type DeadLetters struct {
	pool *pgxpool.Pool
	keys *PayloadKeys
}

// NewDeadLetters returns the workflow for one database. keys open what
// consumers have sealed; nil if they seal nothing.
func NewDeadLetters(pool *pgxpool.Pool, keys *PayloadKeys) *DeadLetters {
	return &DeadLetters{pool: pool, keys: keys}
}

// A DeadLetter is one row of message_failure, without its payload.
type DeadLetter struct {
	FailureID        int64      `json:"failure_id,string"`
	Consumer         string     `json:"consumer"`
	State            string     `json:"state"`
	EventID          *uuid.UUID `json:"event_id"`
	EventType        string     `json:"event_type"`
	SchemaVersion    int        `json:"schema_version"`
	AggregateType    string     `json:"aggregate_type"`
	AggregateID      string     `json:"aggregate_id"`
	AggregateVersion int64      `json:"aggregate_version,string"`
	Stream           string     `json:"stream"`
	StreamSeq        int64      `json:"stream_seq,string"`
	Subject          string     `json:"subject"`
	ErrorClass       string     `json:"error_class"`
	ErrorCode        string     `json:"error_code"`
	ErrorDetail      string     `json:"error_detail"`
	Attempts         int        `json:"attempts"`
	NextAttemptAt    *time.Time `json:"next_attempt_at"`
	TraceID          *string    `json:"trace_id"`
	Owner            string     `json:"owner"`
	Runbook          string     `json:"runbook"`
	DueAt            *time.Time `json:"due_at"`
	Overdue          bool       `json:"overdue"`
	FirstFailedAt    time.Time  `json:"first_failed_at"`
	LastFailedAt     time.Time  `json:"last_failed_at"`
	ResolvedAt       *time.Time `json:"resolved_at"`
	Resolution       *string    `json:"resolution"`
	ReplacedBy       *uuid.UUID `json:"replaced_by"`
}

const deadLetterColumns = `failure_id, consumer, state, event_id, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
	stream, stream_seq, subject, error_class, error_code, error_detail, attempts, next_attempt_at, trace_id, owner, runbook, due_at,
	state = 'open' AND due_at < clock_timestamp() AS overdue, first_failed_at, last_failed_at, resolved_at, resolution, replaced_by`

// A FailureFilter selects failures. Empty fields select everything.
type FailureFilter struct {
	Consumer      string
	State         string // one state, "unresolved" for all that are not at their end, or empty for all
	Code          string
	AggregateType string
	AggregateID   string
	EventID       uuid.UUID
	IDs           []int64
	After         int64 // only rows with a larger failure_id: the last one of the page before
	Limit         int   // defaults to 100
}

// query appends to sql what the filter selects, in the order of the primary
// key. Only what was asked for becomes a condition: the planner then finds the
// index on the aggregate, the event or the unresolved, which "@x = ” OR …"
// hides from it once the plan is generic. Ids come from a sequence, so a row
// that commits late may be missed by one pass over the pages; it is not lost,
// the next pass has it.
func (f FailureFilter) query(sql string) (string, pgx.StrictNamedArgs) {
	setDefault(&f.Limit, 100)
	args := pgx.StrictNamedArgs{"after": f.After, "limit": f.Limit}
	sql += ` FROM message_failure WHERE failure_id > @after`
	when := func(asked bool, condition, name string, value any) {
		if asked {
			sql += ` AND ` + condition
			args[name] = value
		}
	}
	when(f.Consumer != "", `consumer = @consumer`, "consumer", f.Consumer)
	when(f.Code != "", `error_code = @code`, "code", f.Code)
	when(f.AggregateType != "", `aggregate_type = @aggregate_type`, "aggregate_type", f.AggregateType)
	when(f.AggregateID != "", `aggregate_id = @aggregate_id`, "aggregate_id", f.AggregateID)
	when(f.EventID != uuid.Nil, `event_id = @event_id`, "event_id", f.EventID)
	when(f.IDs != nil, `failure_id = ANY(@ids)`, "ids", f.IDs)
	switch f.State {
	case "":
	case "unresolved":
		sql += ` AND state IN ('retrying', 'parked', 'open')`
	default:
		when(true, `state = @state`, "state", f.State)
		if f.State == stateRetrying || f.State == stateParked || f.State == stateOpen { // for the indexes of the unresolved
			sql += ` AND state IN ('retrying', 'parked', 'open')`
		}
	}
	return sql + ` ORDER BY failure_id LIMIT @limit`, args
}

// List returns failures, oldest first.
func (d *DeadLetters) List(ctx context.Context, f FailureFilter) ([]DeadLetter, error) {
	sql, args := f.query(`SELECT ` + deadLetterColumns)
	rows, err := d.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("list failures: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[DeadLetter])
}

const sqlFailuresOf = `
SELECT ` + deadLetterColumns + `
  FROM message_failure
 WHERE aggregate_id = ANY($1::text[]) OR event_id = ANY($2::uuid[]) OR replaced_by = ANY($2::uuid[])
 ORDER BY failure_id LIMIT 1000`

// Of returns the failures, settled or not, of these aggregates' events and of
// the events given, with what corrections have replaced.
func (d *DeadLetters) Of(ctx context.Context, aggregateIDs []string, events ...uuid.UUID) ([]DeadLetter, error) {
	rows, err := d.pool.Query(ctx, sqlFailuresOf, aggregateIDs, events)
	if err != nil {
		return nil, fmt.Errorf("read failures: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[DeadLetter])
}

// Payloads returns the payloads of the failures that the filter selects,
// oldest first. One that was erased or cannot be opened is an error that names
// it: whoever asks for events wants all of them.
func (d *DeadLetters) Payloads(ctx context.Context, f FailureFilter) ([][]byte, error) {
	sql, args := f.query(`SELECT failure_id, payload, sealed_by`)
	rows, err := d.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("read payloads: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]byte, error) {
		var id int64
		var sealed []byte
		var sealedBy *string
		if err := row.Scan(&id, &sealed, &sealedBy); err != nil {
			return nil, err
		}
		if sealed == nil {
			return nil, fmt.Errorf("failure %d: %w", id, ErrErased)
		}
		payload, err := d.keys.open(sealed, sealedBy)
		if err != nil {
			return nil, fmt.Errorf("failure %d: %w", id, err)
		}
		return payload, nil
	})
}

// ErrErased: the payload's retention has ended.
var ErrErased = errors.New("the payload has been erased")

// A FailureGroup is how many failures share a cause.
type FailureGroup struct {
	Consumer  string    `json:"consumer"`
	State     string    `json:"state"`
	ErrorCode string    `json:"error_code"`
	EventType string    `json:"event_type"`
	Count     int       `json:"count"`
	Overdue   int       `json:"overdue"`
	Oldest    time.Time `json:"oldest"`
	Newest    time.Time `json:"newest"`
}

const sqlGroups = `
SELECT consumer, state, error_code, event_type, count(*)::int AS count,
       (count(*) FILTER (WHERE state = 'open' AND due_at < clock_timestamp()))::int AS overdue,
       min(first_failed_at) AS oldest, max(last_failed_at) AS newest
  FROM message_failure
 WHERE state IN ('retrying', 'parked', 'open')
 GROUP BY consumer, state, error_code, event_type
 ORDER BY count DESC, consumer, error_code`

// Groups returns the unresolved failures by cause, the most frequent first.
func (d *DeadLetters) Groups(ctx context.Context) ([]FailureGroup, error) {
	rows, err := d.pool.Query(ctx, sqlGroups)
	if err != nil {
		return nil, fmt.Errorf("group failures: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[FailureGroup])
}

// FailureDetail is a failure with all that is known about it. Payload and
// Headers are as received; whoever shows them decides who may see them.
type FailureDetail struct {
	DeadLetter
	ErrorStack   string          `json:"error_stack,omitempty"`
	Headers      json.RawMessage `json:"headers"`
	Payload      []byte          `json:"-"`
	PayloadState string          `json:"payload_state"` // "" if it is there; else "erased", or why it cannot be opened
	Actions      []Action        `json:"actions"`
}

// ErrNoFailure: there is no failure with this id.
var ErrNoFailure = errors.New("there is no failure with this id")

const sqlDetail = `SELECT error_stack, headers, payload, sealed_by FROM message_failure WHERE failure_id = $1`

// Show returns one failure. A payload that cannot be opened is shown as such;
// the rest is there all the same.
func (d *DeadLetters) Show(ctx context.Context, id int64) (FailureDetail, error) {
	list, err := d.List(ctx, FailureFilter{IDs: []int64{id}})
	if err != nil {
		return FailureDetail{}, err
	}
	if len(list) == 0 {
		return FailureDetail{}, fmt.Errorf("failure %d: %w", id, ErrNoFailure)
	}
	detail := FailureDetail{DeadLetter: list[0]}
	var stack, sealedBy *string
	var sealed, headers []byte
	if err := d.pool.QueryRow(ctx, sqlDetail, id).Scan(&stack, &headers, &sealed, &sealedBy); err != nil {
		return detail, fmt.Errorf("read failure %d: %w", id, err)
	}
	if stack != nil {
		detail.ErrorStack = *stack
	}
	if json.Valid(headers) {
		detail.Headers = headers
	}
	switch {
	case sealed == nil:
		detail.PayloadState = "erased"
	default:
		if detail.Payload, err = d.keys.open(sealed, sealedBy); err != nil {
			detail.PayloadState = err.Error()
		}
	}
	detail.Actions, err = NewHistory(d.pool).ActionsOn(ctx, failureTarget(id))
	return detail, err
}

const sqlRevealed = `SELECT state FROM message_failure WHERE failure_id = $1`

// Reveal is Show for somebody who needs to see the payload, and records who
// that was and why.
func (d *DeadLetters) Reveal(ctx context.Context, id int64, actor Actor) (FailureDetail, error) {
	if err := actor.check(); err != nil {
		return FailureDetail{}, err
	}
	err := postgres.InTx(ctx, d.pool, func(tx pgx.Tx) error {
		var state string
		if err := tx.QueryRow(ctx, sqlRevealed, id).Scan(&state); errors.Is(err, pgx.ErrNoRows) {
			return ErrNoFailure
		} else if err != nil {
			return err
		}
		return act(ctx, tx, actor, "reveal", failureTarget(id), map[string]any{"state": state}, map[string]any{"state": state})
	})
	if err != nil {
		return FailureDetail{}, fmt.Errorf("reveal failure %d: %w", id, err)
	}
	return d.Show(ctx, id)
}

func failureTarget(id int64) string { return fmt.Sprintf("failure %d", id) }

const sqlRetryFailures = `
UPDATE message_failure SET state = 'retrying', next_attempt_at = clock_timestamp(), budget_attempts = 0, budget_spent = '0', due_at = NULL
 WHERE failure_id = ANY($1) AND state IN ('open', 'retrying')
RETURNING failure_id`

// Retry has the consumer try the selected failures again, with a new budget
// and their history kept. What is parked goes by itself once what it waits for
// is applied, so an aggregate is retried in order. It returns how many will be
// tried; those that someone else has settled meanwhile are not among them.
func (d *DeadLetters) Retry(ctx context.Context, f FailureFilter, actor Actor) (int, error) {
	return d.change(ctx, f, actor, "retry", func(ctx context.Context, tx pgx.Tx, ids []int64) ([]int64, error) {
		rows, err := tx.Query(ctx, sqlRetryFailures, ids)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[int64])
	})
}

const sqlDiscardFailures = `
UPDATE message_failure SET state = 'discarded', resolved_at = clock_timestamp(), resolution = 'discarded', next_attempt_at = NULL
 WHERE failure_id = ANY($1) AND state IN ('open', 'retrying', 'parked')
RETURNING failure_id`

// sqlMarkDiscarded remembers discarded events as seen.
const sqlMarkDiscarded = `
INSERT INTO message_inbox (consumer, event_id, aggregate_id, result)
SELECT consumer, event_id, aggregate_id, 'discarded' FROM message_failure WHERE failure_id = ANY($1) AND event_id IS NOT NULL
ON CONFLICT (consumer, event_id) DO NOTHING`

// sqlPassDiscarded passes the versions of discarded events over, one per
// aggregate and call, or what comes after them would wait for ever.
const sqlPassDiscarded = `
UPDATE message_progress p SET last_version = f.aggregate_version
  FROM message_failure f
 WHERE f.failure_id = ANY($1) AND p.consumer = f.consumer AND p.aggregate_type = f.aggregate_type AND p.aggregate_id = f.aggregate_id
   AND f.aggregate_version = p.last_version + 1`

// Discard settles failures without applying them. The rows stay.
func (d *DeadLetters) Discard(ctx context.Context, f FailureFilter, actor Actor) (int, error) {
	return d.change(ctx, f, actor, "discard", func(ctx context.Context, tx pgx.Tx, ids []int64) ([]int64, error) {
		rows, err := tx.Query(ctx, sqlDiscardFailures, ids)
		if err != nil {
			return nil, err
		}
		changed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, sqlMarkDiscarded, changed); err != nil {
			return nil, err
		}
		for range changed { // consecutive versions of one aggregate take a call each
			tag, err := tx.Exec(ctx, sqlPassDiscarded, changed)
			if err != nil {
				return nil, err
			}
			if tag.RowsAffected() == 0 {
				break
			}
		}
		return changed, nil
	})
}

// ErrEverything: a filter without any condition. It is refused: whoever wants
// to change everything says so by naming a consumer or a cause.
var ErrEverything = errors.New("name ids, a consumer, a code or an aggregate")

// change applies one action to what the filter selects, and records it per row
// in the same transaction.
func (d *DeadLetters) change(ctx context.Context, f FailureFilter, actor Actor, action string,
	apply func(ctx context.Context, tx pgx.Tx, ids []int64) ([]int64, error)) (n int, err error) {
	if err := actor.check(); err != nil {
		return 0, err
	}
	if f.Consumer == "" && f.Code == "" && f.AggregateID == "" && f.IDs == nil && f.EventID == uuid.Nil {
		return 0, ErrEverything
	}
	if f.State == "" {
		f.State = "unresolved"
	}
	err = postgres.InTx(ctx, d.pool, func(tx pgx.Tx) error {
		sql, args := f.query(`SELECT failure_id, state`)
		rows, err := tx.Query(ctx, sql+` FOR UPDATE`, args)
		if err != nil {
			return err
		}
		before := map[int64]string{}
		var id int64
		var state string
		if _, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error { before[id] = state; return nil }); err != nil {
			return err
		}
		ids := make([]int64, 0, len(before))
		for id := range before {
			ids = append(ids, id)
		}
		changed, err := apply(ctx, tx, ids)
		if err != nil {
			return err
		}
		n = len(changed)
		for _, id := range changed {
			if err := act(ctx, tx, actor, action, failureTarget(id), map[string]any{"state": before[id]}, map[string]any{"action": action}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%s failures: %w", action, err)
	}
	return n, nil
}
