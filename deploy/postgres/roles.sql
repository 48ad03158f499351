-- What an administrator does once for a cluster, as a superuser: roles and
-- databases. What the roles may do inside of a database is the business of
-- migrations/*/*_grants.sql.
--
-- The passwords come from a file with a line for each role,
-- SET orderpaid.shop_order = '…'; or from whatever runs this.

\ir /secrets/passwords.sql

-- At most as many sessions as the pools of all replicas need; and limits of
-- time, for whoever does not set stricter ones. A migration may take its time,
-- but must not queue for a lock.
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT * FROM (VALUES
		('shop_owner',   10, '0',   '5s', '60s'),
		('shop_order',   60, '10s', '3s', '15s'),
		('shop_points',  60, '10s', '3s', '15s'),
		('shop_notify',  90, '10s', '3s', '15s'),
		('shop_search',  60, '10s', '3s', '15s'),
		('shop_console', 60, '10s', '3s', '15s'),
		('shop_relay',  120, '10s', '3s', '15s'),
		('shop_audit',   20, '60s', '3s', '60s')) v (role, sessions, statement, lock, idle)
	LOOP
		EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION CONNECTION LIMIT %s PASSWORD %L',
			r.role, r.sessions, current_setting('orderpaid.' || r.role));
		EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', r.role, r.statement);
		EXECUTE format('ALTER ROLE %I SET lock_timeout = %L', r.role, r.lock);
		EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', r.role, r.idle);
	END LOOP;
END $$;

-- Reads every table of the shop and changes none, for the check and for
-- audits; the migrations say which.
ALTER ROLE shop_audit SET default_transaction_read_only = on;

-- They sort by bytes. The order of a language changes with the system's libraries:
-- under another image, indexes that were built under the old one would find less
-- than there is, and let keys in twice.
CREATE DATABASE shop_order OWNER shop_owner TEMPLATE template0 LC_COLLATE 'C';

CREATE DATABASE shop_points OWNER shop_owner TEMPLATE template0 LC_COLLATE 'C';

CREATE DATABASE shop_notify OWNER shop_owner TEMPLATE template0 LC_COLLATE 'C';

CREATE DATABASE shop_search OWNER shop_owner TEMPLATE template0 LC_COLLATE 'C';

CREATE DATABASE shop_console OWNER shop_owner TEMPLATE template0 LC_COLLATE 'C';

-- A service must not even connect to another one's database; and search and
-- console, which state no events, have nothing for a relay.
DO $$
DECLARE
	service text;
BEGIN
	FOREACH service IN ARRAY ARRAY['shop_order', 'shop_points', 'shop_notify', 'shop_search', 'shop_console'] LOOP
		EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', service);
		EXECUTE format('GRANT CONNECT ON DATABASE %1$I TO %1$I, shop_audit', service);
	END LOOP;
	GRANT CONNECT ON DATABASE shop_order, shop_points, shop_notify TO shop_relay;
	REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC;
END $$;
