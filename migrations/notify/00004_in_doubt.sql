-- How many mails are in doubt is asked again and again, and hardly ever there
-- is one. Mails are wished for while the index is built. A try that was ended
-- leaves an index that nobody can use; the next one begins by dropping it.

-- +goose NO TRANSACTION

-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS delivery_task_unknown_idx;
CREATE INDEX CONCURRENTLY delivery_task_unknown_idx ON delivery_task (notification_id) WHERE state = 'unknown';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS delivery_task_unknown_idx;
