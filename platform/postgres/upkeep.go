package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
)

// What time does to a schema that is otherwise complete, put right whenever
// somebody migrates, whether anything is to be migrated or not. Each statement
// is safe to repeat, and finds nothing to do on most days.

// sqlPrepareAhead makes the partitions of the coming year that do not exist yet.
// Left to a scheduled job alone, a shop whose job was forgotten would refuse its
// orders a year after it was made. The lock of a parent is not waited for longer
// than writers can bear who wait behind it.
const sqlPrepareAhead = `
DO $$ BEGIN
	SET LOCAL lock_timeout = '1s';
	PERFORM message_prepare_partitions(12);
END $$`

// sqlMoveSequences moves sequences behind every number that is in use. Logical
// replication and copies of single tables bring rows and no sequences: rows would
// then be refused for numbers that exist, and new events would go out before old
// ones that wait. A sequence is never moved back.
//
// The newest facts are found by the time in their ids, which several clocks have
// made: the one with the highest number is among the last thousand, or not far
// from them.
const sqlMoveSequences = `
DO $$
DECLARE counted record; newest bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1868852841, 2); -- two at once could move one back
	FOR counted IN
		SELECT a.attrelid::regclass AS relation, a.attname AS name, pg_get_serial_sequence(a.attrelid::regclass::text, a.attname)::regclass AS sequence
		  FROM pg_attribute a JOIN pg_class t ON t.oid = a.attrelid
		 WHERE t.relnamespace = current_schema()::text::regnamespace AND t.relkind = 'r' AND a.attidentity <> ''
	LOOP
		EXECUTE format('SELECT max(%I) FROM %s', counted.name, counted.relation) INTO newest;
		IF newest > coalesce(pg_sequence_last_value(counted.sequence), 0) THEN
			PERFORM setval(counted.sequence, newest);
		END IF;
	END LOOP;
	SELECT max(id) INTO newest FROM (SELECT id FROM message_outbox ORDER BY event_id DESC LIMIT 1000) AS latest;
	IF newest > coalesce(pg_sequence_last_value('message_outbox_id_seq'), 0) THEN
		PERFORM setval('message_outbox_id_seq', newest + 1000000);
	END IF;
END $$`

// upkeep puts both right. Partitions that could not be made because somebody
// reads for a long time are made the next time: there is a year until then, and
// no start should fail for it.
func upkeep(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, sqlMoveSequences); err != nil {
		return fmt.Errorf("move sequences: %w", err)
	}
	_, err := db.ExecContext(ctx, sqlPrepareAhead)
	if errors.Is(err, context.Canceled) || Classify(err) == Permanent {
		return fmt.Errorf("prepare partitions: %w", err)
	}
	if err != nil {
		slog.WarnContext(ctx, "no partitions were made; the next start tries again", "code", Code(err))
	}
	return nil
}
