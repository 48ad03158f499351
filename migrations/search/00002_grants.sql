-- The service's own role may use its database: message_grant_service says how.

-- +goose Up
SELECT message_grant_service('shop_search');
-- A rebuild empties the slot that is not in use.
-- +goose StatementBegin
DO $$
BEGIN
	IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'shop_search') THEN
		GRANT TRUNCATE ON order_document_0, order_document_1 TO shop_search;
	END IF;
END $$;
-- +goose StatementEnd
SELECT message_grant_reader('shop_audit');

-- +goose Down
-- Rights end with the tables they are on.
