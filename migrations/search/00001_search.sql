-- The search index over orders: one document per order, in one of two slots.
-- The live slot answers queries and takes events; the other one is empty, or
-- being filled by a rebuild, which then swaps the two (services/search/rebuild.go).

-- +goose Up

-- Which slot is live, and the newest fact that it has taken in.
CREATE TABLE search_index (
	one           boolean     PRIMARY KEY DEFAULT true CHECK (one), -- a single row
	live_slot     smallint    NOT NULL DEFAULT 0 CHECK (live_slot IN (0, 1)),
	indexed_as_of timestamptz -- null: nothing yet
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500); -- updated by every group of events
INSERT INTO search_index DEFAULT VALUES;

-- The rebuild that may write to the other slot: the one that began last.
CREATE TABLE search_rebuild (
	one        boolean     PRIMARY KEY DEFAULT true CHECK (one),
	owner      text        NOT NULL DEFAULT '',
	started_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO search_rebuild DEFAULT VALUES;

-- version is the order's aggregate_version after the last event applied.
CREATE TABLE order_document (
	slot            smallint    NOT NULL,
	order_id        text        NOT NULL,
	user_id         text        NOT NULL,
	state           text        NOT NULL CHECK (state IN ('PENDING_PAYMENT', 'PAID', 'CANCELLED')),
	items           jsonb       NOT NULL, -- [{sku, titles: {language: title}, quantity, line_amount}], for showing
	currency        text        NOT NULL,
	exponent        smallint    NOT NULL,
	total_amount    bigint      NOT NULL CHECK (total_amount >= 0), -- minor units
	refunded_amount bigint      NOT NULL DEFAULT 0 CHECK (refunded_amount BETWEEN 0 AND total_amount),
	created_at      timestamptz NOT NULL,
	paid_at         timestamptz,
	refunded_at     timestamptz, -- of the last refund
	cancelled_at    timestamptz,
	version         bigint      NOT NULL CHECK (version >= 1),
	lexemes         tsvector    NOT NULL, -- made by services/search/tokenize.go, which cuts queries in the same way
	PRIMARY KEY (slot, order_id)
) PARTITION BY LIST (slot);
CREATE TABLE order_document_0 PARTITION OF order_document FOR VALUES IN (0);
CREATE TABLE order_document_1 PARTITION OF order_document FOR VALUES IN (1);

CREATE INDEX order_document_lexemes_idx ON order_document USING gin (lexemes);
-- Each list is read newest first, a page at a time.
CREATE INDEX order_document_newest_idx ON order_document (created_at DESC, order_id DESC);
CREATE INDEX order_document_user_idx ON order_document (user_id, created_at DESC, order_id DESC);
CREATE INDEX order_document_state_idx ON order_document (state, created_at DESC, order_id DESC);

-- +goose Down
DROP TABLE order_document, search_rebuild, search_index;
