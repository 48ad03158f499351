-- Nobody knows which fields make a callback of an unknown type another one. So
-- what it says is compared as it came: two disputes that name no order are two,
-- and settling one settles no other.
--
-- Until the last process of the version before is gone, it answers a callback
-- that cannot be applied with 500, because it names the old index; the provider
-- sends that again.

-- +goose Up
ALTER TABLE payment_exception ADD COLUMN said_sha256 bytea NOT NULL DEFAULT ''; -- of an unknown type: the hash of all it says, but for its id and time
DROP INDEX payment_exception_claim_idx;
CREATE UNIQUE INDEX payment_exception_claim_idx ON payment_exception
	(reason, kind, order_id, payment_id, refund_id, amount, currency, said_sha256);

-- +goose Down
-- It fails, and changes nothing, while there are two that differ in what they
-- say alone: one of them would have to go.
DROP INDEX payment_exception_claim_idx;
CREATE UNIQUE INDEX payment_exception_claim_idx ON payment_exception
	(reason, kind, order_id, payment_id, refund_id, amount, currency);
ALTER TABLE payment_exception DROP COLUMN said_sha256;
