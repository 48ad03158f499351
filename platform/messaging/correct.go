package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/postgres"
)

const sqlReplace = `
INSERT INTO message_failure (consumer, dedupe_key, blocking, event_id, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
	stream, stream_seq, subject, headers, payload, sealed_by, state, error_class, error_code, error_detail, attempts, budget_attempts,
	next_attempt_at, trace_id, owner, runbook)
SELECT consumer, @event_id::text, true, @event_id::uuid, @event_type, @schema_version, @aggregate_type, @aggregate_id, @aggregate_version,
       stream, stream_seq, subject, headers, @payload, @sealed_by, 'retrying', error_class, 'corrected', 'a corrected copy of failure ' || failure_id,
       0, 0, clock_timestamp(), trace_id, owner, runbook
  FROM message_failure WHERE failure_id = @id
RETURNING failure_id`

// sqlReplaced also tells whether the failed event's envelope could be read. What
// blocks its aggregate could; so could what is refused for its data, its kind or
// its age alone, which are looked at after the envelope and block nothing.
const sqlReplaced = `
UPDATE message_failure SET state = 'discarded', resolved_at = clock_timestamp(), resolution = 'corrected', replaced_by = $2, next_attempt_at = NULL
 WHERE failure_id = $1 AND state IN ('open', 'retrying', 'parked')
RETURNING consumer, event_id, blocking OR error_code IN ('bad_data', 'unknown_kind', 'too_old') AS readable,
          aggregate_type, aggregate_id, aggregate_version`

// sqlMarkCorrected remembers the replaced event as seen: it may still come
// again, from the stream or a replay, and must then not have an effect beside
// that of its correction. No row means that it has had its effect already.
const sqlMarkCorrected = `
INSERT INTO message_inbox (consumer, event_id, aggregate_id, result) VALUES ($1, $2, $3, 'corrected')
ON CONFLICT (consumer, event_id) DO NOTHING`

// ErrUnreadable: a correction that no consumer could read.
var ErrUnreadable = errors.New("the corrected event is not a readable envelope")

// ErrOtherAggregate: a correction that would correct something else.
var ErrOtherAggregate = errors.New("the corrected event is of another aggregate, or of another version of it, than the one that failed")

// ErrSettled: the failure has come to its end already, or its event has had
// its effect in another way.
var ErrSettled = errors.New("this failure is settled already")

// Fix sends a corrected envelope to the consumer instead of the one that
// failed. What was said cannot be unsaid, so it becomes an event of its own:
// it gets a new id, and the old one as its cause. Both rows and the action stay
// and name each other. It returns the new event's id.
//
// Aggregate and version must be those of the event that failed, if that could be
// read at all: what waits behind it waits for these, and another aggregate has
// not asked for anything.
func (d *DeadLetters) Fix(ctx context.Context, id int64, corrected []byte, actor Actor) (uuid.UUID, error) {
	if err := actor.check(); err != nil {
		return uuid.Nil, err
	}
	env, err := correct(corrected)
	if err != nil {
		return uuid.Nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	err = postgres.InTx(ctx, d.pool, func(tx pgx.Tx) error { return d.replace(ctx, tx, id, env, actor) })
	if err != nil {
		return uuid.Nil, fmt.Errorf("fix failure %d: %w", id, err)
	}
	return env.EventID, nil
}

// correct gives a corrected envelope an identity of its own. It must be
// readable by now; that is the point of it.
func correct(raw []byte) (Envelope, error) {
	var wire struct {
		Envelope
		EventID string `json:"event_id"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return Envelope{}, err
	}
	if err := checkNames(raw); err != nil { // what is written below has each name once
		return Envelope{}, err
	}
	env := wire.Envelope
	var err error
	if env.EventID, err = uuid.NewV7(); err != nil {
		return Envelope{}, err
	}
	env.CausationID = text(wire.EventID)
	encoded, err := json.Marshal(env)
	if err != nil {
		return Envelope{}, err
	}
	return parseEnvelope(encoded)
}

func (d *DeadLetters) replace(ctx context.Context, tx pgx.Tx, id int64, env Envelope, actor Actor) error {
	payload, err := json.Marshal(env)
	if err != nil {
		return err
	}
	sealed, sealedBy, err := d.keys.seal(payload)
	if err != nil {
		return err
	}
	if err := settleCorrected(ctx, tx, id, env); err != nil {
		return err
	}
	var newID int64
	err = tx.QueryRow(ctx, sqlReplace, pgx.StrictNamedArgs{"id": id, "event_id": env.EventID, "event_type": env.EventType,
		"schema_version": env.SchemaVersion, "aggregate_type": env.AggregateType, "aggregate_id": env.AggregateID,
		"aggregate_version": env.AggregateVersion, "payload": sealed, "sealed_by": sealedBy}).Scan(&newID)
	if err != nil {
		return err
	}
	after := map[string]any{"replaced_by": env.EventID, "failure_id": newID}
	if err := act(ctx, tx, actor, "fix", failureTarget(id), map[string]any{"failure_id": id}, after); err != nil {
		return err
	}
	return act(ctx, tx, actor, "fix", failureTarget(newID), map[string]any{"replaces": id}, after)
}

// settleCorrected ends the failure that a correction replaces.
func settleCorrected(ctx context.Context, tx pgx.Tx, id int64, by Envelope) error {
	var consumer string
	var event *uuid.UUID
	var readable bool
	var of aggregateKey
	var version int64
	err := tx.QueryRow(ctx, sqlReplaced, id, by.EventID).Scan(&consumer, &event, &readable, &of.Type, &of.ID, &version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrSettled
	case err != nil:
		return err
	case readable && (of != aggregateKey{by.AggregateType, by.AggregateID} || version != by.AggregateVersion):
		return ErrOtherAggregate
	case event == nil: // it could not even be read
		return nil
	}
	tag, err := tx.Exec(ctx, sqlMarkCorrected, consumer, event, of.ID)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrSettled
	}
	return err
}
