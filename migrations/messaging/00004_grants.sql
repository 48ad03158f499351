-- Who may touch what in every database. Roles are made once for a cluster
-- (deploy/postgres/roles.sql); where one does not exist, as in tests, there is
-- nothing to grant. After making a role later, run the functions again: they
-- are safe to repeat.

-- +goose Up

-- A service reads everything in its own database and writes what it must. It
-- cannot change what has been recorded: facts, evidence, actions of people, the
-- version of the schema. It creates and empties nothing.
-- +goose StatementBegin
CREATE FUNCTION message_grant_service(service text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	role_missing boolean := NOT EXISTS (SELECT FROM pg_roles WHERE rolname = service);
	final text;
BEGIN
	IF role_missing THEN
		RETURN;
	END IF;
	EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', service);
	EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO %I', service);
	EXECUTE format('GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO %I', service);
	-- The same for tables of later migrations.
	EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO %I', service);
	EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO %I', service);
	-- What is final. A partition has rights of its own, which nobody needs:
	-- whoever goes through the parent is judged by the parent's.
	FOR final IN
		SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
		   AND (c.relname ~ '^(message_outbox|message_outbox_publication|message_inbox)(_[0-9]{4}_[0-9]{2}|_other)$'
		     OR c.relname IN ('message_outbox', 'message_outbox_publication', 'operator_action', 'relay_lease', 'relay_member')
		     OR c.relname LIKE 'goose\_%')
	LOOP
		EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I FROM %I', final, service);
	END LOOP;
	EXECUTE format('GRANT INSERT ON message_outbox, operator_action TO %I', service);
END $$;
-- +goose StatementEnd

-- A relay sees the outbox and the relays' leases, and nothing else. It updates
-- evidence when it publishes again what the broker had lost, and deletes none.
-- +goose StatementBegin
CREATE FUNCTION message_grant_relay(relay text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = relay) THEN
		RETURN;
	END IF;
	EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', relay);
	EXECUTE format('GRANT SELECT ON message_outbox, goose_messaging TO %I', relay);
	EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON message_outbox_pending, message_outbox_held TO %I', relay);
	EXECUTE format('GRANT SELECT, INSERT, UPDATE ON message_outbox_publication TO %I', relay);
	EXECUTE format('GRANT SELECT, UPDATE ON relay_lease TO %I', relay);
	EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON relay_member TO %I', relay);
END $$;
-- +goose StatementEnd

-- An auditor reads every table of the shop and changes none. The role
-- pg_read_all_data would do as well, and would show him the passwords of all
-- roles too.
-- +goose StatementBegin
CREATE FUNCTION message_grant_reader(reader text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = reader) THEN
		RETURN;
	END IF;
	EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', reader);
	EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA public TO %I', reader);
	EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO %I', reader);
END $$;
-- +goose StatementEnd

-- Functions are everybody's by default. These, and the one that makes
-- partitions, are the owner's.
REVOKE EXECUTE ON FUNCTION message_grant_service(text), message_grant_relay(text), message_grant_reader(text), message_prepare_partitions(integer) FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
	PERFORM message_grant_relay('shop_relay');
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION message_grant_service(text), message_grant_relay(text), message_grant_reader(text);
