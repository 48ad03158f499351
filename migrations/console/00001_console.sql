-- The console's own tables: what it has heard, and how far each order is.

-- +goose Up

-- The audit trail. One row per event of every service, as the console's own
-- consumer read it; never the event's data, which may be personal.
CREATE TABLE audit_event (
	event_id          uuid        PRIMARY KEY,
	kind              text        NOT NULL, -- OrderPaid.v1
	producer          text        NOT NULL,
	aggregate_type    text        NOT NULL,
	aggregate_id      text COLLATE "C" NOT NULL,
	aggregate_version bigint      NOT NULL,
	order_id          text COLLATE "C" NOT NULL, -- the order that it is about; '' if none that looks like one
	correlation_id    text        NOT NULL,
	causation_id      text        NOT NULL,
	occurred_at       timestamptz NOT NULL,
	recorded_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX audit_event_order_idx ON audit_event (order_id, occurred_at);

-- Append-only, whoever asks: a trail that can be edited proves nothing.
-- +goose StatementBegin
CREATE FUNCTION audit_event_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'the audit trail is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_event_final BEFORE UPDATE OR DELETE ON audit_event
	FOR EACH ROW EXECUTE FUNCTION audit_event_is_final();
CREATE TRIGGER audit_event_kept BEFORE TRUNCATE ON audit_event
	FOR EACH STATEMENT EXECUTE FUNCTION audit_event_is_final();

-- How far each order is, by the events that told of it. The counters are of
-- effects: more than one of them is what must never happen.
CREATE TABLE order_progress (
	order_id       text COLLATE "C" PRIMARY KEY,
	paid_at        timestamptz,
	credited_at    timestamptz,
	mailed_at      timestamptz,
	mail_failed_at timestamptz,
	indexed_at     timestamptz, -- as search has confirmed when it was asked: it states no event
	payments       integer NOT NULL DEFAULT 0,
	credits        integer NOT NULL DEFAULT 0,
	mails          integer NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
-- What is unfinished is little, and asked for every second.
CREATE INDEX order_progress_unfinished_idx ON order_progress (paid_at)
 WHERE paid_at IS NOT NULL AND (credited_at IS NULL OR indexed_at IS NULL OR mailed_at IS NULL AND mail_failed_at IS NULL);
CREATE INDEX order_progress_repeated_idx ON order_progress (order_id) WHERE payments > 1 OR credits > 1 OR mails > 1;

-- Events by kind: in total, so that nobody counts the trail, and per minute.
CREATE TABLE event_total (
	kind   text   PRIMARY KEY,
	events bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE event_minute (
	minute timestamptz NOT NULL,
	kind   text        NOT NULL,
	events bigint      NOT NULL,
	PRIMARY KEY (minute, kind)
) WITH (fillfactor = 50);

-- How far the console has read what other services confirm.
CREATE TABLE confirmation (
	service text        PRIMARY KEY,
	since   timestamptz NOT NULL
);

-- +goose Down
DROP TABLE confirmation, event_minute, event_total, order_progress, audit_event;
DROP FUNCTION audit_event_is_final();
