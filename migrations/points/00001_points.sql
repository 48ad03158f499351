-- The points service's own tables: a ledger that only grows, and for each user
-- the sum of it.

-- +goose Up

-- One row per booking. What it says is never changed: a correction is another
-- row. entry_id is a UUIDv7 behind its prefix, so ids sort by age.
CREATE TABLE points_entry (
	entry_id  text COLLATE "C" PRIMARY KEY,
	order_id  text COLLATE "C" NOT NULL CHECK (octet_length(order_id) BETWEEN 1 AND 64),
	user_id   text COLLATE "C" NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	kind      text        NOT NULL,
	refund_id text COLLATE "C" NOT NULL DEFAULT '' CHECK (octet_length(refund_id) <= 200), -- of a reversal only
	points    bigint      NOT NULL,
	event_id  uuid        NOT NULL, -- the event that it was booked for
	booked_at timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT points_entry_sign CHECK (
		(kind = 'award' AND refund_id = '' AND points >= 0) OR
		(kind = 'reversal' AND refund_id <> '' AND points <= 0)),
	-- One award for an order and one reversal for a refund, under however many
	-- event ids they are announced. The inbox cannot know that; this can.
	CONSTRAINT points_entry_once UNIQUE (order_id, kind, refund_id)
);
-- A user's entries are read newest first, a page at a time.
CREATE INDEX points_entry_user_idx ON points_entry (user_id, entry_id DESC);

-- The sum of a user's entries, changed by the statement that adds the entry.
-- It may be below zero: points that were spent and then taken back are a debt.
CREATE TABLE points_balance (
	user_id    text COLLATE "C" PRIMARY KEY,
	balance    bigint      NOT NULL,
	updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70); -- updated with every entry, and no index covers what changes

-- +goose Down
DROP TABLE points_balance, points_entry;
