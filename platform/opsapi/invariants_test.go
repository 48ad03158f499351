package opsapi_test

import (
	"slices"
	"testing"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// violated returns the names of the invariants that do not hold.
func (b *bench) violated(t *testing.T) (names []string) {
	t.Helper()
	list, err := b.client(t, alice).Invariants(t.Context(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, inv := range list {
		if !inv.Holds {
			names = append(names, inv.Name)
		}
	}
	return names
}

// C132, C133, C146: what is wrong with a database, and hurts nobody yet or
// nobody who would notice, is named. Each database here is one that somebody has
// restored in parts, looked after for too short a time, or given another image.
func TestWhatADatabaseLacksIsNamedBeforeItHurts(t *testing.T) {
	t.Parallel()
	for want, sql := range map[string]string{
		"numbers_go_forward": `SELECT setval('message_outbox_id_seq', 1)`,
		"partitions_ahead": `DO $$ BEGIN EXECUTE 'DROP TABLE message_outbox'
			|| to_char(date_trunc('month', now() AT TIME ZONE 'UTC') + interval '2 months', '"_"YYYY"_"MM'); END $$`,
		"collation_is_unchanged": `UPDATE pg_database SET datcollversion = '2.19' WHERE datname = current_database()`,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
			b.stage(t, messaging.New("a", 1, changed{N: 1}), messaging.New("b", 1, changed{N: 1}))
			healthy := b.violated(t)
			if _, err := b.pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
			got := slices.DeleteFunc(b.violated(t), func(name string) bool { return slices.Contains(healthy, name) })
			if !slices.Equal(got, []string{want}) {
				t.Errorf("got %v broken, want %s", got, want)
			}
		})
	}
}

// C145: a month was taken off one of the tables, and an older one stayed because
// something in it is unfinished.
func TestAServiceSaysHowFarBackItsMessagesReach(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	info, err := b.client(t, alice).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	month := time.Date(info.Now.UTC().Year(), info.Now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	if want := month.AddDate(0, -1, 0); !info.KeptSince.Equal(want) {
		t.Errorf("messages reach back to %v, want %v", info.KeptSince, want)
	}
	for _, sql := range []string{
		`DO $$ BEGIN EXECUTE 'ALTER TABLE message_inbox DETACH PARTITION message_inbox' || to_char(now() AT TIME ZONE 'UTC' - interval '1 month', '"_"YYYY"_"MM'); END $$`,
		`CREATE TABLE message_inbox_2001_01 PARTITION OF message_inbox FOR VALUES FROM (message_uuid_floor('2001-01-01 00:00Z')) TO (message_uuid_floor('2001-02-01 00:00Z'))`,
	} {
		if _, err := b.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if info, err = b.client(t, alice).Info(t.Context()); err != nil || !info.KeptSince.Equal(month) {
		t.Errorf("messages reach back to %v, %v, want %v", info.KeptSince, err, month)
	}
}
