package messaging_test

import (
	"testing"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/pgtest"
)

// A busy pool may let no renewal through in its time, for as long as the groups
// keep the lease.
func TestAReplicaWhoseRenewalsFailLearnsTheHorizonFromItsGroups(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	got, err := messaging.HorizonKnownToAGroupAfter(t.Context(), pool, func() {
		exec(t, pool, `UPDATE message_horizon SET inbox_since = '2026-03-01Z'`)
	})
	if want := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC); err != nil || !got.Equal(want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
