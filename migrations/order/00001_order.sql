-- The order service's own tables: what is sold, what was ordered, what the
-- payment provider said, and what is still on its way to the customer.

-- +goose Up

-- The catalogue. An order copies titles and prices from here when it is
-- placed; later changes of the catalogue never reach it.
CREATE TABLE product (
	sku      text COLLATE "C" PRIMARY KEY CHECK (sku ~ '^[A-Z0-9][A-Z0-9-]{0,63}$'),
	title_en text NOT NULL CHECK (char_length(title_en) BETWEEN 1 AND 200),
	title_zh text NOT NULL CHECK (char_length(title_zh) BETWEEN 1 AND 200),
	title_ja text NOT NULL CHECK (char_length(title_ja) BETWEEN 1 AND 200)
);

CREATE TABLE product_price (
	sku      text COLLATE "C" NOT NULL REFERENCES product,
	currency text   NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
	amount   bigint NOT NULL CHECK (amount > 0), -- minor units
	PRIMARY KEY (sku, currency)
);

-- One row per order: the state machine. Whoever changes it holds the row's
-- lock and raises version by one; the event of that change carries the version.
CREATE TABLE orders (
	order_id          text COLLATE "C" PRIMARY KEY CHECK (order_id ~ '^ord_[0-9a-f]{32}$'),
	user_id           text COLLATE "C" NOT NULL CHECK (user_id ~ '^[A-Za-z0-9_-]{1,64}$'),
	state             text   NOT NULL CHECK (state IN ('PENDING_PAYMENT', 'PAID', 'CANCELLED')),
	version           bigint NOT NULL CHECK (version >= 1),
	currency          text   NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
	total_amount      bigint NOT NULL CHECK (total_amount > 0), -- minor units, as all amounts here
	refunded_amount   bigint NOT NULL DEFAULT 0,
	points            bigint NOT NULL DEFAULT 0, -- what the payment earned, by the rule of that moment
	points_taken_back bigint NOT NULL DEFAULT 0, -- by all refunds so far
	cancel_reason     text CHECK (char_length(cancel_reason) BETWEEN 1 AND 500),
	created_at        timestamptz NOT NULL,
	paid_at           timestamptz,
	cancelled_at      timestamptz,
	CHECK ((state = 'PAID') = (paid_at IS NOT NULL)),
	CHECK ((state = 'CANCELLED') = (cancelled_at IS NOT NULL)),
	CHECK ((state = 'CANCELLED') = (cancel_reason IS NOT NULL)),
	CHECK (refunded_amount BETWEEN 0 AND total_amount),
	CHECK (points >= 0 AND points_taken_back BETWEEN 0 AND points),
	CHECK (state = 'PAID' OR (refunded_amount = 0 AND points = 0))
) WITH (fillfactor = 80); -- every order is updated at least once, and no index covers what changes

CREATE TABLE order_line (
	order_id    text COLLATE "C" NOT NULL REFERENCES orders,
	line_no     integer NOT NULL CHECK (line_no >= 1),
	sku         text COLLATE "C" NOT NULL,
	title_en    text    NOT NULL,
	title_zh    text    NOT NULL,
	title_ja    text    NOT NULL,
	quantity    integer NOT NULL CHECK (quantity BETWEEN 1 AND 10000),
	unit_amount bigint  NOT NULL CHECK (unit_amount > 0),
	line_amount bigint  NOT NULL CHECK (line_amount = unit_amount * quantity),
	PRIMARY KEY (order_id, line_no),
	UNIQUE (order_id, sku)
);

-- What happened to an order, in order, for people. version is the order's
-- after the entry; an entry that changed nothing repeats the version before.
CREATE TABLE order_history (
	history_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id   text COLLATE "C" NOT NULL REFERENCES orders,
	version    bigint      NOT NULL,
	entry      text        NOT NULL CHECK (entry IN ('created', 'paid', 'refunded', 'cancelled', 'payment_failed')),
	actor      text        NOT NULL CHECK (actor IN ('customer', 'payment provider')),
	note       text        NOT NULL DEFAULT '',
	at         timestamptz NOT NULL
);
CREATE INDEX order_history_order_idx ON order_history (order_id, history_id);

-- The payment that an order has. The primary key is what makes one payment,
-- announced twenty times at once, one payment; the other unique key keeps an
-- order from being paid twice.
CREATE TABLE payment (
	payment_id  text COLLATE "C" PRIMARY KEY CHECK (octet_length(payment_id) BETWEEN 1 AND 200),
	order_id    text COLLATE "C" NOT NULL UNIQUE REFERENCES orders,
	amount      bigint      NOT NULL CHECK (amount > 0),
	currency    text        NOT NULL,
	provider_at timestamptz NOT NULL, -- when it succeeded, by the provider's clock
	recorded_at timestamptz NOT NULL
);

-- Refund ids are the provider's; they need to be unique only within a payment.
CREATE TABLE refund (
	payment_id  text COLLATE "C" NOT NULL REFERENCES payment,
	refund_id   text COLLATE "C" NOT NULL CHECK (octet_length(refund_id) BETWEEN 1 AND 200),
	order_id    text COLLATE "C" NOT NULL REFERENCES orders,
	amount      bigint      NOT NULL CHECK (amount > 0),
	points      bigint      NOT NULL CHECK (points >= 0), -- taken back by this refund
	provider_at timestamptz NOT NULL,
	recorded_at timestamptz NOT NULL,
	PRIMARY KEY (payment_id, refund_id)
);
CREATE INDEX refund_order_idx ON refund (order_id);

-- Every callback whose signature was right, with its bytes as received, and
-- what was made of it. A repetition gets the answer that the first one got.
CREATE TABLE payment_callback (
	callback_id text COLLATE "C" PRIMARY KEY CHECK (octet_length(callback_id) BETWEEN 1 AND 200),
	order_id    text        NOT NULL, -- as the provider named it: not necessarily an order of ours
	body        bytea       NOT NULL,
	result      text        CHECK (result IN ('applied', 'already_applied', 'noted', 'held', 'kept')),
	reason      text        NOT NULL DEFAULT '',
	received_at timestamptz NOT NULL
);
CREATE INDEX payment_callback_order_idx ON payment_callback (order_id);

-- What the provider announced and the order cannot follow: money may have
-- moved, so a person has to look. held waits for its payment and is applied
-- by it; open waits for a person.
CREATE TABLE payment_exception (
	exception_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	state         text   NOT NULL CHECK (state IN ('open', 'held', 'applied')),
	reason        text   NOT NULL,
	explanation   text   NOT NULL,
	kind          text   NOT NULL, -- the callback's type: payment.succeeded
	order_id      text COLLATE "C" NOT NULL,
	payment_id    text COLLATE "C" NOT NULL,
	refund_id     text COLLATE "C" NOT NULL, -- empty unless it is about a refund
	amount        bigint NOT NULL,
	currency      text   NOT NULL,
	provider_at   timestamptz NOT NULL,
	callback_id   text   NOT NULL, -- the first callback that said so
	occurrences   bigint NOT NULL DEFAULT 1,
	first_seen_at timestamptz NOT NULL,
	last_seen_at  timestamptz NOT NULL
);
-- One entry for one claim, however often and under however many ids it comes.
CREATE UNIQUE INDEX payment_exception_claim_idx ON payment_exception
	(reason, kind, order_id, payment_id, refund_id, amount, currency);
CREATE INDEX payment_exception_waiting_idx ON payment_exception (exception_id) WHERE state IN ('open', 'held');
CREATE INDEX payment_exception_order_idx ON payment_exception (order_id);

-- What the customer was promised with the payment, and how far it is.
-- "late" is not a state of its own: it is pending after promised_by.
CREATE TABLE follow_up (
	order_id    text COLLATE "C" NOT NULL REFERENCES orders,
	kind        text        NOT NULL CHECK (kind IN ('points', 'notification')),
	state       text        NOT NULL CHECK (state IN ('pending', 'done', 'failed')),
	since       timestamptz NOT NULL, -- when this state began
	promised_by timestamptz NOT NULL,
	code        text        NOT NULL DEFAULT '', -- why it failed
	PRIMARY KEY (order_id, kind)
) WITH (fillfactor = 80);

-- The answers to requests that carried an Idempotency-Key. The row commits
-- together with what the request did, so there is no state "in progress" that
-- a crash could leave behind: a row is an answer.
CREATE TABLE idempotency_key (
	route         text  NOT NULL,
	key           text COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 200),
	request_hash  bytea NOT NULL, -- SHA-256 of the request in its canonical form
	status        integer,
	response      bytea,
	created_at    timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (route, key)
);

-- +goose Down
DROP TABLE idempotency_key, follow_up, payment_exception, payment_callback, refund, payment, order_history, order_line,
	orders, product_price, product;
