-- What every database that stages or consumes events has: the outbox as facts,
-- queue and evidence; the leases of relays and consumers; the inbox; failures.
-- Read docs/01-life-of-one-event.md beside this file.

-- +goose Up

-- The smallest UUIDv7 (RFC 9562) of a moment. Facts, evidence and inbox rows
-- are partitioned by RANGE of their event id: it is the only key that can be
-- unique across partitions and that also tells their age.
-- +goose StatementBegin
CREATE FUNCTION message_uuid_floor(moment timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT (lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid
$$;
-- +goose StatementEnd

-- The facts. Append-only: nothing ever updates a row, so its bytes are the
-- ones that were committed with the business change.
CREATE SEQUENCE message_outbox_id_seq AS bigint;
CREATE TABLE message_outbox (
	event_id          uuid        NOT NULL,
	id                bigint      NOT NULL DEFAULT nextval('message_outbox_id_seq'),
	shard             smallint    NOT NULL CHECK (shard BETWEEN 0 AND 63),
	aggregate_type    text        NOT NULL,
	aggregate_id      text        NOT NULL,
	aggregate_version bigint      NOT NULL CHECK (aggregate_version >= 1),
	kind              text        NOT NULL,
	subject           text        NOT NULL,
	payload           bytea       NOT NULL, -- bytes, not jsonb: jsonb would reorder and reformat them
	trace_parent      text        NOT NULL DEFAULT '', -- of the creation, so that a relay need not read payloads
	created_at        timestamptz NOT NULL DEFAULT now(),
	expires_at        timestamptz,
	PRIMARY KEY (event_id)
) PARTITION BY RANGE (event_id);
-- Not unique: across partitions it could not be. The aggregate's locked and
-- versioned row is what keeps one event per version.
CREATE INDEX message_outbox_aggregate_idx ON message_outbox (aggregate_id, aggregate_version);

-- The queue: only of what may flow. A row appears with its fact and goes when
-- the broker has acknowledged. Nothing updates it, so it stays small.
CREATE TABLE message_outbox_pending (
	shard        smallint    NOT NULL,
	id           bigint      NOT NULL,
	event_id     uuid        NOT NULL,
	attempts     integer     NOT NULL DEFAULT 0,
	available_at timestamptz NOT NULL DEFAULT now(), -- when it was staged or released; the age of the oldest is the relay's lag
	last_error   text,
	PRIMARY KEY (shard, id)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Rows of an aggregate that waits, because one of its events was refused:
-- out of the queue, so that they never fill a relay's reading window.
CREATE TABLE message_outbox_held (
	shard          smallint    NOT NULL,
	id             bigint      NOT NULL,
	event_id       uuid        NOT NULL,
	aggregate_type text        NOT NULL,
	aggregate_id   text        NOT NULL,
	state          text        NOT NULL CHECK (state IN ('failed', 'backoff', 'behind')),
	attempts       integer     NOT NULL,
	available_at   timestamptz NOT NULL, -- when its turn comes; infinity: not before a person says so
	held_at        timestamptz NOT NULL DEFAULT now(),
	last_error     text        NOT NULL,
	PRIMARY KEY (shard, id)
);
CREATE INDEX message_outbox_held_due_idx ON message_outbox_held (shard, available_at) WHERE state = 'backoff';
CREATE INDEX message_outbox_held_aggregate_idx ON message_outbox_held (shard, aggregate_type, aggregate_id, id);

-- The evidence: where the broker stored each event. Written by the statement
-- that takes the row off the queue, so a second marker writes nothing.
CREATE TABLE message_outbox_publication (
	event_id     uuid        NOT NULL,
	stream       text        NOT NULL,
	stream_seq   bigint      NOT NULL,
	duplicate    boolean     NOT NULL, -- the broker held it already: an earlier attempt had arrived
	published_at timestamptz NOT NULL DEFAULT now(),
	relay        text        NOT NULL,
	PRIMARY KEY (event_id)
) PARTITION BY RANGE (event_id);

-- Who relays which slice of the outbox, by the database's clock.
CREATE TABLE relay_lease (
	shard       smallint    PRIMARY KEY CHECK (shard BETWEEN 0 AND 63),
	owner       text        NOT NULL DEFAULT '',
	epoch       bigint      NOT NULL DEFAULT 0,
	lease_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);
INSERT INTO relay_lease (shard) SELECT generate_series(0, 63);

CREATE TABLE relay_member (
	relay      text        PRIMARY KEY,
	seen_until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

-- Which replica of a consumer is the active one.
CREATE TABLE consumer_lease (
	consumer    text        PRIMARY KEY,
	owner       text        NOT NULL DEFAULT '',
	epoch       bigint      NOT NULL DEFAULT 0,
	lease_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

-- What each consumer has done. The key names the consumer: two consumers in
-- one database must each have their own effect.
CREATE TABLE message_inbox (
	consumer     text        NOT NULL,
	event_id     uuid        NOT NULL,
	aggregate_id text        NOT NULL,
	processed_at timestamptz NOT NULL DEFAULT now(),
	result       text        NOT NULL DEFAULT 'applied',
	PRIMARY KEY (consumer, event_id)
) PARTITION BY RANGE (event_id);
CREATE INDEX message_inbox_aggregate_idx ON message_inbox (aggregate_id);

-- For consumers that need every version of an aggregate: how far each one is.
CREATE TABLE message_progress (
	consumer       text   NOT NULL,
	aggregate_type text   NOT NULL,
	aggregate_id   text   NOT NULL,
	last_version   bigint NOT NULL,
	PRIMARY KEY (consumer, aggregate_type, aggregate_id)
) WITH (fillfactor = 80);

-- Events that a consumer could not apply (yet), with their bytes as received.
--
--   retrying  failed and will be tried again at next_attempt_at
--   parked    waits behind an earlier event of its aggregate, or for a missing version
--   open      a dead letter: no more tries until a person acts; due_at says until when
--   resolved  applied after all; resolution says how
--   discarded a person decided that it will not be applied
--
-- Rows are never deleted. When their retention ends the payload is erased.
CREATE TABLE message_failure (
	failure_id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	consumer          text        NOT NULL,
	dedupe_key        text        NOT NULL, -- the event id; for what has none: position and hash of the bytes
	blocking          boolean     NOT NULL, -- later versions of its aggregate wait behind it
	event_id          uuid,
	event_type        text        NOT NULL,
	schema_version    integer     NOT NULL,
	aggregate_type    text        NOT NULL,
	aggregate_id      text        NOT NULL, -- the business key: the order of an order's event
	aggregate_version bigint      NOT NULL,
	stream            text        NOT NULL,
	stream_seq        bigint      NOT NULL,
	subject           text        NOT NULL,
	headers           bytea       NOT NULL, -- JSON of name to values; bytes, because it came from outside
	payload           bytea,                -- as received, sealed with the key sealed_by; NULL once erased
	sealed_by         text,
	state             text        NOT NULL CHECK (state IN ('retrying', 'parked', 'open', 'resolved', 'discarded')),
	error_class       text        NOT NULL CHECK (error_class IN ('transient', 'permanent', 'unknown', 'parked')),
	error_code        text        NOT NULL,
	error_detail      text        NOT NULL,
	error_stack       text,
	attempts          integer     NOT NULL, -- in all
	budget_attempts   integer     NOT NULL, -- of the present budget; a person who retries grants a new one
	budget_spent      interval    NOT NULL DEFAULT '0', -- in scheduled delays: while a database is away, nothing is spent
	next_attempt_at   timestamptz,
	trace_id          text,
	owner             text        NOT NULL DEFAULT '',
	runbook           text        NOT NULL DEFAULT '',
	due_at            timestamptz,
	first_failed_at   timestamptz NOT NULL DEFAULT now(),
	last_failed_at    timestamptz NOT NULL DEFAULT now(),
	resolved_at       timestamptz,
	resolution        text,
	replaced_by       uuid,                 -- the corrected event that a person sent instead
	CHECK ((state IN ('resolved', 'discarded')) = (resolved_at IS NOT NULL)),
	CHECK (state <> 'retrying' OR next_attempt_at IS NOT NULL)
);
-- One unresolved entry per event and consumer, however often the event comes.
CREATE UNIQUE INDEX message_failure_unresolved_idx ON message_failure (consumer, dedupe_key) WHERE state IN ('retrying', 'parked', 'open');
CREATE INDEX message_failure_aggregate_idx ON message_failure (consumer, aggregate_type, aggregate_id, aggregate_version) WHERE state IN ('retrying', 'parked', 'open');
CREATE INDEX message_failure_due_idx ON message_failure (consumer, next_attempt_at) WHERE state IN ('retrying', 'parked');
CREATE INDEX message_failure_event_idx ON message_failure (event_id);

-- Makes the monthly partitions of facts, evidence and inbox from one month
-- before now to months_ahead after it. Safe to repeat. The inbox also has a
-- default partition: an event id that someone else made may be of any age.
-- Months are counted in timestamps without a zone, which mean UTC here: with
-- timestamptz, "+ 1 month" depends on the session's TimeZone, and partitions
-- made from two zones would overlap or leave gaps.
-- +goose StatementBegin
CREATE FUNCTION message_prepare_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
	owner text; lower_month timestamp; partition text; made integer := 0;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtext('message_prepare_partitions')); -- two at once would make the same table
	FOREACH owner IN ARRAY ARRAY['message_outbox', 'message_outbox_publication', 'message_inbox'] LOOP
		FOR i IN -1..months_ahead LOOP
			lower_month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i);
			partition := owner || to_char(lower_month, '"_"YYYY"_"MM');
			IF to_regclass(partition) IS NULL THEN
				EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', partition, owner,
					message_uuid_floor(lower_month AT TIME ZONE 'UTC'),
					message_uuid_floor((lower_month + interval '1 month') AT TIME ZONE 'UTC'));
				made := made + 1;
			END IF;
		END LOOP;
	END LOOP;
	RETURN made;
END $$;
-- +goose StatementEnd
CREATE TABLE message_inbox_other PARTITION OF message_inbox DEFAULT;
SELECT message_prepare_partitions(12);

-- The state of each event in the words of the outbox pattern.
CREATE VIEW message_outbox_state AS
SELECT o.event_id, o.id, o.shard, o.aggregate_type, o.aggregate_id, o.aggregate_version, o.kind, o.subject, o.created_at, o.expires_at,
       CASE WHEN b.event_id IS NOT NULL THEN 'published'
            WHEN h.state = 'failed' THEN 'failed'
            WHEN h.event_id IS NOT NULL THEN 'pending'
            WHEN l.lease_until > clock_timestamp() THEN 'publishing'
            ELSE 'pending' END AS state,
       coalesce(p.attempts, h.attempts, 0) AS attempts,
       coalesce(p.available_at, h.available_at) AS available_at,
       coalesce(p.last_error, h.last_error) AS last_error,
       l.owner AS relay, l.lease_until,
       b.stream, b.stream_seq, b.duplicate, b.published_at, b.relay AS published_by
  FROM message_outbox o
  LEFT JOIN message_outbox_pending p ON p.shard = o.shard AND p.id = o.id
  LEFT JOIN message_outbox_held h ON h.shard = o.shard AND h.id = o.id
  LEFT JOIN message_outbox_publication b ON b.event_id = o.event_id
  LEFT JOIN relay_lease l ON l.shard = o.shard;

-- +goose Down
DROP VIEW message_outbox_state;
DROP FUNCTION message_prepare_partitions(integer);
DROP TABLE message_failure, message_progress, message_inbox, consumer_lease, relay_member, relay_lease,
	message_outbox_publication, message_outbox_held, message_outbox_pending, message_outbox;
DROP SEQUENCE message_outbox_id_seq;
DROP FUNCTION message_uuid_floor(timestamptz);
