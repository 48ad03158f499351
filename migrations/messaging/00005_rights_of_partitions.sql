-- A partition that is made later is a new table, and gets what new tables get:
-- a service could have changed facts in it, past their parent.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION message_seal_partitions() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	writable record;
BEGIN
	FOR writable IN
		SELECT DISTINCT c.oid::regclass AS partition, a.grantee::regrole AS role
		  FROM pg_inherits i
		  JOIN pg_class c ON c.oid = i.inhrelid
		 CROSS JOIN LATERAL aclexplode(c.relacl) a
		 WHERE i.inhparent IN ('message_outbox'::regclass, 'message_outbox_publication'::regclass, 'message_inbox'::regclass)
		   AND a.grantee NOT IN (0, c.relowner) AND a.privilege_type <> 'SELECT'
	LOOP
		EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %s FROM %s', writable.partition, writable.role);
	END LOOP;
END $$;

CREATE OR REPLACE FUNCTION message_prepare_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
	owner text; lower_month timestamp; partition text; made integer := 0;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtext('message_prepare_partitions')); -- two at once would make the same table
	FOREACH owner IN ARRAY ARRAY['message_outbox', 'message_outbox_publication', 'message_inbox'] LOOP
		FOR i IN -1..months_ahead LOOP
			lower_month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i);
			partition := owner || to_char(lower_month, '"_"YYYY"_"MM');
			IF to_regclass(partition) IS NULL THEN
				EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', partition, owner,
					message_uuid_floor(lower_month AT TIME ZONE 'UTC'),
					message_uuid_floor((lower_month + interval '1 month') AT TIME ZONE 'UTC'));
				made := made + 1;
			END IF;
		END LOOP;
	END LOOP;
	PERFORM message_seal_partitions();
	RETURN made;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION message_seal_partitions() FROM PUBLIC;
SELECT message_seal_partitions();

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION message_prepare_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
	owner text; lower_month timestamp; partition text; made integer := 0;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtext('message_prepare_partitions')); -- two at once would make the same table
	FOREACH owner IN ARRAY ARRAY['message_outbox', 'message_outbox_publication', 'message_inbox'] LOOP
		FOR i IN -1..months_ahead LOOP
			lower_month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i);
			partition := owner || to_char(lower_month, '"_"YYYY"_"MM');
			IF to_regclass(partition) IS NULL THEN
				EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', partition, owner,
					message_uuid_floor(lower_month AT TIME ZONE 'UTC'),
					message_uuid_floor((lower_month + interval '1 month') AT TIME ZONE 'UTC'));
				made := made + 1;
			END IF;
		END LOOP;
	END LOOP;
	RETURN made;
END $$;
-- +goose StatementEnd
DROP FUNCTION message_seal_partitions();
