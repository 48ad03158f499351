-- A person can settle a payment exception, and what the provider sent need not
-- be kept for ever: see the retention of these tables.

-- +goose Up

-- settled: a person has dealt with it; operator_action says who and why.
ALTER TABLE payment_exception
	DROP CONSTRAINT payment_exception_state_check,
	ADD CONSTRAINT payment_exception_state_check CHECK (state IN ('open', 'held', 'applied', 'settled')),
	ADD COLUMN settled_at timestamptz;

-- The body of an old callback is erased; its hash stays, so that a repetition
-- still gets the answer that the first one got.
ALTER TABLE payment_callback ADD COLUMN body_sha256 bytea;

-- Retention looks for what is old, and inserts are always at the end of these.
CREATE INDEX payment_callback_received_idx ON payment_callback (received_at) WHERE body_sha256 IS NULL;
CREATE INDEX idempotency_key_created_idx ON idempotency_key (created_at);

-- +goose Down
DROP INDEX idempotency_key_created_idx, payment_callback_received_idx;
ALTER TABLE payment_callback DROP COLUMN body_sha256;
UPDATE payment_exception SET state = 'open' WHERE state = 'settled';
ALTER TABLE payment_exception
	DROP COLUMN settled_at,
	DROP CONSTRAINT payment_exception_state_check,
	ADD CONSTRAINT payment_exception_state_check CHECK (state IN ('open', 'held', 'applied'));
