-- Reconciliation reads the history of all orders by time: what has happened
-- since then must have been published.

-- +goose Up
CREATE INDEX order_history_at_idx ON order_history (at, history_id);

-- +goose Down
DROP INDEX order_history_at_idx;
