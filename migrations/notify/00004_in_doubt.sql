-- How many mails are in doubt is asked again and again, and hardly ever there
-- is one.

-- +goose Up
CREATE INDEX delivery_task_unknown_idx ON delivery_task (notification_id) WHERE state = 'unknown';

-- +goose Down
DROP INDEX delivery_task_unknown_idx;
