package messaging_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
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

func TestAFutureOfPartitionsIsPrepared(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	report, err := messaging.Retain(t.Context(), pool, messaging.RetentionConfig{Ahead: 14})
	if err != nil || report.Prepared != 6 {
		t.Errorf("got %d new partitions, %v, want 6: two months of three tables", report.Prepared, err)
	}
}
