package messaging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/postgres"
)

// sqlBury records an event that this consumer can never apply. The bytes go
// into a bytea column exactly as they came: jsonb would refuse some and
// rewrite others, and then the evidence of what was wrong would be gone.
//
// While an entry is open the same event only counts as one more attempt: it is
// one dead letter however often it is delivered, published or replayed.
const sqlBury = `
INSERT INTO message_failure (consumer, dedupe_key, event_id, event_type, aggregate_type, aggregate_id, aggregate_version,
	stream, stream_seq, subject, headers, payload, state, error_class, error_code, error_detail, attempts, trace_id)
VALUES (@consumer, @dedupe_key, @event_id, @event_type, @aggregate_type, @aggregate_id, @aggregate_version,
	@stream, @stream_seq, @subject, @headers, @payload, 'open', 'permanent', @error_code, @error_detail, 1, @trace_id)
ON CONFLICT (consumer, dedupe_key) WHERE state IN ('open', 'retrying', 'parked')
DO UPDATE SET attempts = message_failure.attempts + 1, last_failed_at = now(), state = 'open',
	error_class = excluded.error_class, error_code = excluded.error_code, error_detail = excluded.error_detail`

const sqlApplied = `SELECT EXISTS (SELECT FROM message_inbox WHERE consumer = $1 AND event_id = $2)`

// bury commits a dead letter and only then acknowledges the delivery. While it
// cannot be committed the event stays with the broker.
func (c *Consumer) bury(ctx context.Context, d Delivery, env Envelope, cause error) error {
	for attempt := 0; ; attempt++ {
		applied, err := c.buryOnce(ctx, d, env, cause)
		if err == nil {
			if !applied {
				c.meters.buried(ctx, codeOf(cause))
				c.cfg.Logger.Error("dead letter: this consumer can never apply the event", "event_id", eventID(env), "kind", env.name(),
					"stream", d.Stream(), "sequence", d.Sequence(), "code", codeOf(cause), "error", detailOf(cause))
			}
			return d.Ack()
		}
		if errors.Is(err, errPlaceLost) {
			return err
		}
		if attempt == 0 {
			c.cfg.Logger.Warn("dead letter not recorded yet; the event stays with the broker", "event_id", eventID(env), "code", codeOf(err))
		}
		wait(ctx, backoff(attempt, 50*time.Millisecond, 5*time.Second))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// buryOnce reports applied if the event has had its effect already: a copy of
// it that cannot be read is then a duplicate and no reason for an alarm.
func (c *Consumer) buryOnce(ctx context.Context, d Delivery, env Envelope, cause error) (applied bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.HandlerTimeout)
	defer cancel()
	headers, err := json.Marshal(d.Headers())
	if err != nil {
		return false, fmt.Errorf("encode headers: %w", err)
	}
	args := pgx.StrictNamedArgs{
		"consumer": c.name, "dedupe_key": dedupeKey(d, env), "event_id": eventID(env),
		"event_type": text(env.EventType), "aggregate_type": text(env.AggregateType), "aggregate_id": text(env.AggregateID),
		"aggregate_version": env.AggregateVersion, "stream": d.Stream(), "stream_seq": int64(d.Sequence()), "subject": text(d.Subject()),
		"headers": headers, "payload": d.Data(), "error_code": codeOf(cause), "error_detail": detailOf(cause), "trace_id": traceID(env),
	}
	if args["payload"] == nil || d.Data() == nil {
		args["payload"] = []byte{}
	}
	err = postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.place.fence(ctx, tx); err != nil {
			return err
		}
		if env.EventID != uuid.Nil {
			if err := tx.QueryRow(ctx, sqlApplied, c.name, env.EventID).Scan(&applied); err != nil || applied {
				return err
			}
		}
		_, err := tx.Exec(ctx, sqlBury, args)
		return err
	})
	return applied, err
}

// dedupeKey identifies a dead letter: by the event, or, for what has no
// readable id, by its place and its bytes. The place alone would not do: a
// stream that was made anew counts from 1 again.
func dedupeKey(d Delivery, env Envelope) string {
	if env.EventID != uuid.Nil {
		return env.EventID.String()
	}
	sum := sha256.Sum256(d.Data())
	return fmt.Sprintf("%s/%d/%s", d.Stream(), d.Sequence(), hex.EncodeToString(sum[:]))
}

func eventID(env Envelope) *uuid.UUID {
	if env.EventID == uuid.Nil {
		return nil
	}
	return &env.EventID
}

func traceID(env Envelope) *string {
	if !validTraceParent(env.TraceParent) {
		return nil
	}
	id := env.TraceParent[3:35]
	return &id
}

// text makes a field of an unreadable event storable: bounded, valid, no NUL.
func text(s string) string {
	return truncate(strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?"), MaxIDBytes)
}
