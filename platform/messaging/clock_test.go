package messaging_test

import (
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/natstest"
)

// C97: the database's clock was set back by an hour, and who held the leases
// before that is dead.
func TestLeasesFromBeforeTheClockWasSetBackHoldUpNoRelay(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	for _, sql := range []string{
		`UPDATE relay_lease SET owner = 'dead', epoch = 1, lease_until = now() + interval '1 h'`,
		`INSERT INTO relay_member (relay, seen_until) VALUES ('dead', now() + interval '1 h')`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	startRelay(t, pool, newRecorder(), messaging.RelayConfig{Name: "heir"})
	awaitCount(t, pool, messaging.Shards, `SELECT count(*) FROM relay_lease WHERE owner = 'heir' AND lease_until < now() + interval '1 min'`)
}

// C97: the same for the place of the active replica.
func TestALeaseFromBeforeTheClockWasSetBackHoldsUpNoConsumer(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	server := natstest.New(t)
	ensureWriter(t, server)
	if _, err := pool.Exec(t.Context(), `INSERT INTO consumer_lease (consumer, owner, epoch, lease_until) VALUES ('writer', 'dead', 1, now() + interval '1 h')`); err != nil {
		t.Fatal(err)
	}
	startRelay(t, separatePool(t, pool), connect(t, server, "relay"), messaging.RelayConfig{Logger: quiet})
	startWriter(t, separatePool(t, pool), connect(t, server, "writer"), "heir")
	stageMany(t, pool, 1, 1)
	awaitCount(t, pool, 1, sqlCountEffects)
	awaitCount(t, pool, 1, `SELECT count(*) FROM consumer_lease WHERE owner = 'heir' AND lease_until < now() + interval '1 min'`)
}
