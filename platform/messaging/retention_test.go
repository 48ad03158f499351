package messaging_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgtest"
)

const day = 24 * time.Hour

// C48: a cleaner that forgets sooner than events can come again, or that takes
// what is not published, loses or repeats money.
func TestSettingsThatWouldForgetTooSoonAreRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []messaging.RetentionConfig{
		{Inbox: 10 * day},
		{Stream: 80 * day},
		{Outbox: 3 * day},
		{Failures: -time.Hour},
		{Stream: -90 * day, Inbox: 31 * day, Outbox: 30 * day},
	} {
		if err := cfg.Check(); err == nil {
			t.Errorf("%+v: got no error", cfg)
		}
	}
	if err := (messaging.RetentionConfig{}).Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	if _, err := messaging.Retain(t.Context(), nil, messaging.RetentionConfig{Inbox: day}); !errors.Is(err, messaging.ErrForgetful) {
		t.Errorf("got %v, want ErrForgetful", err)
	}
}

// A scheduled job with a slip in its number must not report that all is well
// while no partition is made, nor make so many that its transaction never ends.
func TestPartitionsAreMadeForOneMonthAheadAtLeastAndTenYearsAtMost(t *testing.T) {
	t.Parallel()
	for _, months := range []int{-1, 0, 121} {
		if _, err := messaging.Prepare(t.Context(), nil, months); err == nil {
			t.Errorf("%d months: got no error", months)
		}
	}
}

// C48: what is not finished is not cleaned up, however old it is.
// C83: cleaning up takes months off at once, and deletes no rows beside those who
// write.
func TestOldPartitionsAreDetachedUnlessSomethingInThemIsUnfinished(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	// Two months of two years ago, one with an unpublished event.
	old := map[string]string{"2024_01": "2024-01-15", "2024_02": "2024-02-15"}
	for month, moment := range old {
		for _, parent := range []string{"message_outbox", "message_outbox_publication", "message_inbox"} {
			_, err := pool.Exec(t.Context(), `DO $do$ BEGIN EXECUTE format('CREATE TABLE `+parent+`_`+month+` PARTITION OF `+parent+` FOR VALUES FROM (%L) TO (%L)',
				message_uuid_floor(date_trunc('month', '`+moment+`'::timestamptz)), message_uuid_floor(date_trunc('month', '`+moment+`'::timestamptz) + interval '1 month')); END $do$`)
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := pool.Exec(t.Context(), `INSERT INTO message_outbox (event_id, shard, aggregate_type, aggregate_id, aggregate_version, kind, subject, payload)
			VALUES (message_uuid_floor($1::timestamptz), 0, 'thing', $2, 1, 'k', 's', '')`, moment, month)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `INSERT INTO message_outbox_pending (shard, id, event_id) SELECT shard, id, event_id FROM message_outbox WHERE aggregate_id = '2024_02'`); err != nil {
		t.Fatal(err)
	}
	report, err := messaging.Retain(t.Context(), pool, messaging.RetentionConfig{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(report.Detached)
	want := []string{"message_inbox_2024_01", "message_inbox_2024_02", "message_outbox_2024_01", "message_outbox_publication_2024_01"}
	if !slices.Equal(report.Detached, want) {
		t.Errorf("got %v detached, want %v", report.Detached, want)
	}
	if want := []string{"message_outbox_2024_02", "message_outbox_publication_2024_02"}; !slices.Equal(report.Kept, want) {
		t.Errorf("got %v kept, want %v", report.Kept, want)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_horizon WHERE inbox_since = '2024-03-01Z'::timestamptz`); got != 1 {
		t.Errorf("got %d horizons at the end of the newest month that was detached, want 1", got)
	}
	var still int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM message_outbox_2024_01`).Scan(&still); err != nil && !errors.Is(err, pgx.ErrNoRows) || still != 1 {
		t.Errorf("got %d rows in the detached table, %v, want 1", still, err)
	}
}

// monthOf2024 makes the partitions of January 2024.
func monthOf2024(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, parent := range []string{"message_outbox", "message_outbox_publication", "message_inbox"} {
		exec(t, pool, `DO $do$ BEGIN EXECUTE format('CREATE TABLE `+parent+`_2024_01 PARTITION OF `+parent+` FOR VALUES FROM (%L) TO (%L)',
			message_uuid_floor('2024-01-01Z'), message_uuid_floor('2024-02-01Z')); END $do$`)
	}
}

// C130: the machine on which retention runs is years ahead of the database. By
// its clock everything is old.
func TestWhatIsOldIsSaidByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	monthOf2024(t, pool)
	exec(t, pool, `CREATE SCHEMA behind`)
	exec(t, pool, `CREATE FUNCTION behind.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2024-03-01Z'::timestamptz $$`)
	config := pool.Config()
	config.ConnConfig.RuntimeParams["search_path"] = "behind, pg_catalog, public"
	behind, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	report, err := messaging.Retain(t.Context(), behind, messaging.RetentionConfig{})
	if err != nil || len(report.Detached) != 0 || len(report.Kept) != 0 {
		t.Errorf("got %+v, %v, want nothing of a month that ended a month ago taken off", report, err)
	}
}

// C131: a run was interrupted after it had taken the facts of a month off, and
// they were dropped before the next.
func TestAMonthWhoseFactsWereDroppedLetsItsEvidenceGo(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	monthOf2024(t, pool)
	exec(t, pool, `ALTER TABLE message_outbox DETACH PARTITION message_outbox_2024_01`)
	exec(t, pool, `DROP TABLE message_outbox_2024_01`)
	report, err := messaging.Retain(t.Context(), pool, messaging.RetentionConfig{})
	if want := []string{"message_inbox_2024_01", "message_outbox_publication_2024_01"}; err != nil || !slices.Equal(report.Detached, want) {
		t.Errorf("got %+v, %v, want %v taken off", report, err, want)
	}
}

func TestAFutureOfPartitionsIsPrepared(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	report, err := messaging.Retain(t.Context(), pool, messaging.RetentionConfig{Ahead: 14})
	if err != nil || report.Prepared != 6 {
		t.Errorf("got %d new partitions, %v, want 6: two months of three tables", report.Prepared, err)
	}
}

// An event may be applied long after it was made. For as long as it can be
// delivered again, its month stays.
func TestAMonthInWhichSomethingWasAppliedLatelyStays(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	exec(t, pool, `DO $do$ BEGIN EXECUTE format('CREATE TABLE message_inbox_2024_01 PARTITION OF message_inbox FOR VALUES FROM (%L) TO (%L)',
		message_uuid_floor('2024-01-01Z'), message_uuid_floor('2024-02-01Z')); END $do$`)
	exec(t, pool, `INSERT INTO message_inbox (consumer, event_id, aggregate_id) VALUES ('c', message_uuid_floor('2024-01-15Z'), 'a')`)
	report, err := messaging.Retain(t.Context(), pool, messaging.RetentionConfig{})
	if err != nil || !slices.Equal(report.Kept, []string{"message_inbox_2024_01"}) {
		t.Errorf("got %+v, %v, want the month kept", report, err)
	}
	exec(t, pool, `UPDATE message_inbox SET processed_at = now() - interval '39 days'`)
	if report, err = messaging.Retain(t.Context(), pool, messaging.RetentionConfig{}); err != nil || len(report.Detached) != 1 {
		t.Errorf("got %+v, %v, want it detached once the stream is younger", report, err)
	}
}

func TestWhatHasNoPartitionAndPayloadsOfReplaysHaveAnEndToo(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	exec(t, pool, `INSERT INTO message_inbox (consumer, event_id, aggregate_id, processed_at) SELECT 'c', gen_random_uuid(), 'a', now() - interval '1 day' * n
		FROM generate_series(89, 91, 2) n`)
	exec(t, pool, `INSERT INTO message_replay (replay_id, consumer, source, filter, state, allow_external, per_second, items, requested_by, reason, created_at, ended_at)
		VALUES ('00000000-0000-0000-0000-000000000001', 'c', 'outbox', '{}', 'done', false, 1, 1, 'a', 'r', now() - interval '40 days', now() - interval '39 days'),
		       ('00000000-0000-0000-0000-000000000002', 'c', 'outbox', '{}', 'ready', false, 1, 1, 'a', 'r', now() - interval '40 days', NULL),
		       ('00000000-0000-0000-0000-000000000003', 'c', 'outbox', '{}', 'done', false, 1, 1, 'a', 'r', now(), now())`)
	exec(t, pool, `INSERT INTO message_replay_item (replay_id, position, event_id, kind, aggregate_type, aggregate_id, aggregate_version, expected, payload)
		SELECT replay_id, 1, gen_random_uuid(), 'k', 't', 'a', 1, 'apply', 'secret' FROM message_replay`)
	report, err := messaging.Retain(t.Context(), pool, messaging.RetentionConfig{})
	if err != nil || report.Erased != 1 || report.Forgotten != 1 {
		t.Errorf("got %+v, %v, want one payload erased and one row forgotten", report, err)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_replay_item`); got != 3 {
		t.Errorf("got %d items, want all three to stay on record", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_replay r JOIN operator_action a ON a.target = 'replay ' || r.replay_id
		WHERE r.state = 'refused' AND a.actor = 'retention'`); got != 1 {
		t.Errorf("got %d abandoned replays refused on record, want 1", got)
	}
}

// A consumer may be the active one for months, while retention goes on.
func TestTheActiveReplicaLearnsThatTheInboxRemembersLess(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	got, err := messaging.HorizonKnownAfter(t.Context(), pool, func() {
		exec(t, pool, `UPDATE message_horizon SET inbox_since = '2026-03-01Z'`)
	})
	if want := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC); err != nil || !got.Equal(want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// C48: what the inbox has forgotten looks new. Applied at once it could have its
// effect a second time; so a person decides.
func TestAnEventOlderThanTheInboxRemembersIsNotAppliedWithoutAPerson(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	exec(t, pool, `UPDATE message_horizon SET inbox_since = now() + interval '1 hour'`)
	c := newWriter(t, pool, "writer")
	if answers := messagingtest.Deliver(t, c, messagingtest.Envelope(t, "a", 1, changed{N: 1})); !messagingtest.AllAcked(answers) {
		t.Errorf("got %v, want it recorded and acknowledged", answers)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE state = 'open' AND error_code = 'too_old'`); got != 1 || count(t, pool, sqlCountEffects) != 0 {
		t.Errorf("got %d dead letters, want 1 and no effect", got)
	}
	if _, err := messaging.NewDeadLetters(pool, nil).Retry(t.Context(), messaging.FailureFilter{Code: "too_old"}, messaging.Actor{Name: "alice", Reason: "it was held for months"}); err != nil {
		t.Fatal(err)
	}
	messagingtest.RetryAll(t, pool, c)
	if got := count(t, pool, sqlCountEffects); got != 1 {
		t.Errorf("got %d effects after a person's word, want 1", got)
	}
}

// claimed is a delivery whose publisher has written a replay's header on it.
type claimed struct{ messaging.Delivery }

func (claimed) Header(string) string { return "01a22acb-f999-7611-a80c-f7c3ec1725a4" }

func TestAMessageThatOnlySaysItIsAReplayIsTreatedAsAnyOther(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	subscription := messaging.Subscription{Durable: "writer", Kinds: []messaging.Kind{changed{}.Kind()}}
	broker := membroker.New(subscription)
	stage(t, pool, messaging.New("a", 1, changed{N: 1}))
	startRelay(t, separatePool(t, pool), broker, messaging.RelayConfig{Logger: quiet})
	c := newWriter(t, pool, "writer")
	source, err := broker.Subscribe(t.Context(), subscription)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	deliveries, err := source.Fetch(t.Context(), 1)
	if err != nil || len(deliveries) != 1 {
		t.Fatalf("got %d deliveries, %v, want 1", len(deliveries), err)
	}
	exec(t, pool, `UPDATE message_horizon SET inbox_since = now() + interval '1 hour'`)
	if err := c.Apply(t.Context(), claimed{deliveries[0]}); err != nil {
		t.Fatal(err)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE error_code = 'too_old'`); got != 1 || count(t, pool, sqlCountEffects) != 0 {
		t.Errorf("got %d dead letters, want 1 and no effect", got)
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
