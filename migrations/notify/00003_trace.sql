-- A mail is sent some time after its event was handled, perhaps by another
-- process. Its span is linked to the trace of the payment all the same.

-- +goose Up
ALTER TABLE delivery_task ADD COLUMN trace_parent text NOT NULL DEFAULT ''; -- W3C trace context of event_id

-- +goose Down
ALTER TABLE delivery_task DROP COLUMN trace_parent;
