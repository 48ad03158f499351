-- Search is asked about the orders that it has not confirmed, each by its
-- event. How far it was read by time is not kept any more: an order whose event
-- came later than that was never asked about.

-- +goose Up
DROP TABLE confirmation;
CREATE INDEX order_progress_unindexed_idx ON order_progress (order_id) WHERE paid_at IS NOT NULL AND indexed_at IS NULL;

-- +goose Down
DROP INDEX order_progress_unindexed_idx;
CREATE TABLE confirmation (
	service text        PRIMARY KEY,
	since   timestamptz NOT NULL
);
SELECT message_grant_service('shop_console');
