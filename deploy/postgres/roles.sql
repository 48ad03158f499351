-- What an administrator does once for a cluster, with psql as a superuser:
-- roles and databases. What the roles may do inside a database is the business
-- of migrations/*/*_grants.sql.
--
-- The passwords come from a file that sets one variable for each role.

\set ON_ERROR_STOP on
\ir /secrets/passwords.psql

-- Limits that hold whatever a client asks for at its start, unless it sets them
-- itself; and never more sessions than the pools of all replicas need.
SELECT format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION CONNECTION LIMIT %s PASSWORD %L', role, sessions, password)
  FROM (VALUES ('shop_owner',   10, :'shop_owner'),
               ('shop_order',   60, :'shop_order'),
               ('shop_points',  60, :'shop_points'),
               ('shop_notify',  90, :'shop_notify'),
               ('shop_search',  60, :'shop_search'),
               ('shop_relay',  120, :'shop_relay'),
               ('shop_audit',   20, :'shop_audit')) r (role, sessions, password)
\gexec

SELECT format('ALTER ROLE %I SET statement_timeout = %L', role, statement),
       format('ALTER ROLE %I SET lock_timeout = %L', role, lock),
       format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', role, idle)
  FROM (VALUES ('shop_owner',  '0',   '5s', '60s'), -- a migration may take its time, but must not queue for a lock
               ('shop_order',  '10s', '3s', '15s'),
               ('shop_points', '10s', '3s', '15s'),
               ('shop_notify', '10s', '3s', '15s'),
               ('shop_search', '10s', '3s', '15s'),
               ('shop_relay',  '10s', '3s', '15s'),
               ('shop_audit',  '60s', '3s', '60s')) r (role, statement, lock, idle)
\gexec

-- Reads everything and changes nothing: for the check and for audits.
GRANT pg_read_all_data TO shop_audit;
ALTER ROLE shop_audit SET default_transaction_read_only = on;

SELECT format('CREATE DATABASE %I OWNER shop_owner', 'shop_' || service)
  FROM unnest(ARRAY['order', 'points', 'notify', 'search']) service
\gexec

-- A service must not even connect to another one's database.
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', 'shop_' || service),
       format('GRANT CONNECT ON DATABASE %1$I TO %1$I, shop_relay, shop_audit', 'shop_' || service)
  FROM unnest(ARRAY['order', 'points', 'notify', 'search']) service
\gexec
REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC;
-- search stages no events.
REVOKE CONNECT ON DATABASE shop_search FROM shop_relay;
