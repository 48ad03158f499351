-- Whoever takes the service away asks whether any promise to a customer is
-- still open. Of all that were ever made few are, so the index stays small.

-- +goose NO TRANSACTION

-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS follow_up_pending_idx; -- of a try that was ended
CREATE INDEX CONCURRENTLY follow_up_pending_idx ON follow_up (order_id) WHERE state = 'pending';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS follow_up_pending_idx;
