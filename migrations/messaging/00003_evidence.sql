-- What answers "what became of this event?" without reading whole tables, and
-- the tickets that dead letters have opened.

-- +goose Up
CREATE INDEX message_failure_key_idx ON message_failure (aggregate_id);
CREATE INDEX message_failure_replaced_idx ON message_failure (replaced_by) WHERE replaced_by IS NOT NULL;
CREATE INDEX message_replay_item_event_idx ON message_replay_item (event_id);

-- One row per dead letter for which a ticket was or will be asked for, where a
-- service is given the address of a ticket system. The row is claimed before
-- the request, so that of several replicas one asks.
CREATE TABLE message_ticket (
	failure_id      bigint      PRIMARY KEY REFERENCES message_failure,
	state           text        NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'opened', 'gave_up')),
	attempts        integer     NOT NULL DEFAULT 0,
	next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	last_error      text        NOT NULL DEFAULT '',
	opened_at       timestamptz,
	CHECK ((state = 'opened') = (opened_at IS NOT NULL))
);
CREATE INDEX message_ticket_due_idx ON message_ticket (next_attempt_at) WHERE state = 'waiting';

-- +goose Down
DROP TABLE message_ticket;
DROP INDEX message_replay_item_event_idx, message_failure_replaced_idx, message_failure_key_idx;
