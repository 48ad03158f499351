-- The notify service's own tables: where customers want their mail, and what
-- has become of each mail.

-- +goose Up

CREATE TABLE contact (
	user_id    text COLLATE "C" PRIMARY KEY CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	email      text        NOT NULL CHECK (octet_length(email) BETWEEN 3 AND 254),
	locale     text        NOT NULL CHECK (locale IN ('en', 'zh', 'ja')),
	updated_at timestamptz NOT NULL DEFAULT now()
);

-- One row per mail, from the wish to the end. notification_id is a UUIDv7
-- behind its prefix, so ids sort by age; it is also the mail's Message-ID.
CREATE TABLE delivery_task (
	notification_id text COLLATE "C" PRIMARY KEY,
	order_id        text COLLATE "C" NOT NULL CHECK (octet_length(order_id) BETWEEN 1 AND 64),
	user_id         text COLLATE "C" NOT NULL CHECK (octet_length(user_id) BETWEEN 1 AND 64),
	template        text        NOT NULL CHECK (template IN ('order_paid')),

	-- What the mail says. The address is looked up when it is sent.
	amount          bigint      NOT NULL CHECK (amount >= 0), -- minor units
	currency        text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
	exponent        smallint    NOT NULL CHECK (exponent BETWEEN 0 AND 4),
	paid_at         timestamptz NOT NULL,

	-- The event that asked for it; what is stated about the mail refers to it.
	event_id        uuid        NOT NULL,
	correlation_id  text        NOT NULL,
	tenant          text        NOT NULL,

	state           text        NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'sending', 'sent', 'failed', 'unknown')),
	code            text        NOT NULL DEFAULT '', -- why the last attempt did not end in sent
	reply           text        NOT NULL DEFAULT '', -- the mail server's status then, such as 550 5.1.1; never its text
	attempts        integer     NOT NULL DEFAULT 0,  -- that the server put off; outages do not count
	unknowns        integer     NOT NULL DEFAULT 0,  -- that ended without an answer after the last byte
	claim           bigint      NOT NULL DEFAULT 0,  -- grows with each claim; who holds an older one is no longer the sender
	due_at          timestamptz NOT NULL DEFAULT now(), -- queued: not before; sending: the end of the sender's lease
	version         bigint      NOT NULL DEFAULT 0,  -- events stated so far
	created_at      timestamptz NOT NULL DEFAULT now(),
	updated_at      timestamptz NOT NULL DEFAULT now(),

	-- One mail of a kind for an order, under however many event ids it is asked for.
	CONSTRAINT delivery_task_once UNIQUE (order_id, template)
) WITH (fillfactor = 70);

-- What a sender looks for: only of tasks that are not over, so it stays small.
CREATE INDEX delivery_task_due_idx ON delivery_task (due_at) WHERE state IN ('queued', 'sending');
-- A user's mails are read newest first, a page at a time.
CREATE INDEX delivery_task_user_idx ON delivery_task (user_id, notification_id DESC);

-- +goose Down
DROP TABLE delivery_task, contact;
