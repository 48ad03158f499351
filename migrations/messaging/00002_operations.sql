-- What people do: their actions on failures, and replays.

-- +goose Up

-- Every action of a person, with what was before and after. Append-only.
CREATE TABLE operator_action (
	action_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at        timestamptz NOT NULL DEFAULT clock_timestamp(),
	actor     text        NOT NULL CHECK (actor <> ''),
	action    text        NOT NULL,
	target    text        NOT NULL, -- "failure 12", "replay 0197…"
	reason    text        NOT NULL CHECK (reason <> ''),
	before    jsonb       NOT NULL DEFAULT '{}',
	after     jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX operator_action_target_idx ON operator_action (target);

-- A replay brings chosen events to one consumer again. Its items are written
-- when it is planned; each is open or done, so that a crash in the middle
-- loses nothing and repeats nothing.
--
--   awaiting_approval  too large for one person: another one must approve it
--   ready              nobody has started it
--   running            the consumer works on it
--   stopped            a person stopped it; it can go on
--   done               every item is done; report says what was found
--   refused            the second person said no
CREATE TABLE message_replay (
	replay_id      uuid        PRIMARY KEY,
	consumer       text        NOT NULL,
	source         text        NOT NULL CHECK (source IN ('failures', 'outbox', 'stream')),
	filter         jsonb       NOT NULL,
	state          text        NOT NULL CHECK (state IN ('awaiting_approval', 'ready', 'running', 'stopped', 'done', 'refused')),
	allow_external boolean     NOT NULL,
	per_second     integer     NOT NULL CHECK (per_second > 0),
	items          integer     NOT NULL,
	requested_by   text        NOT NULL CHECK (requested_by <> ''),
	reason         text        NOT NULL CHECK (reason <> ''),
	approved_by    text,
	report         jsonb,
	created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
	started_at     timestamptz,
	ended_at       timestamptz,
	CHECK (approved_by IS NULL OR approved_by <> requested_by)
);
CREATE INDEX message_replay_running_idx ON message_replay (consumer) WHERE state = 'running';

CREATE TABLE message_replay_item (
	replay_id         uuid    NOT NULL REFERENCES message_replay,
	position          integer NOT NULL,
	event_id          uuid    NOT NULL,
	kind              text    NOT NULL,
	aggregate_type    text    NOT NULL,
	aggregate_id      text    NOT NULL,
	aggregate_version bigint  NOT NULL,
	expected          text    NOT NULL, -- what the plan said: apply, already_applied, stale, external, unusable
	payload           bytea   NOT NULL,
	sealed_by         text,
	done_at           timestamptz,
	result            text,
	PRIMARY KEY (replay_id, position)
);
CREATE INDEX message_replay_item_open_idx ON message_replay_item (replay_id, position) WHERE done_at IS NULL;

-- How far back this database's inbox remembers. Retention moves it when it
-- detaches a partition; a replay of older events is refused, because they
-- would look new.
CREATE TABLE message_horizon (
	only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
	inbox_since    timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO message_horizon DEFAULT VALUES;

-- +goose Down
DROP TABLE message_horizon;
DROP TABLE message_replay_item, message_replay, operator_action;
