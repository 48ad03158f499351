-- Search is asked about the orders that it has not confirmed, each by its
-- event. How far it was read by time is not kept any more: an order whose event
-- came later than that was never asked about.
--
-- The table of that, confirmation, stays for the processes of the version
-- before, which read and write it until the last of them is gone. Nothing else
-- does, so the next version drops it.
--
-- Events are recorded while the index is built. A try that was ended leaves an
-- index that nobody can use; the next one begins by dropping it.

-- +goose NO TRANSACTION

-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS order_progress_unindexed_idx;
CREATE INDEX CONCURRENTLY order_progress_unindexed_idx ON order_progress (order_id) WHERE paid_at IS NOT NULL AND indexed_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS order_progress_unindexed_idx;
