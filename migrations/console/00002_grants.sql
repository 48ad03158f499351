-- The service's own role may use its database: message_grant_service says how.

-- +goose Up
SELECT message_grant_service('shop_console');
SELECT message_grant_reader('shop_audit');

-- +goose Down
-- Rights end with the tables they are on.
