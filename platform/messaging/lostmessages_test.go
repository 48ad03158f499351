package messaging_test

import (
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/natstest"
)

// C100: the disk of the broker lost messages in a power cut, and new ones get
// the sequences that the durable has behind it. What was lost and not handled
// is for the reconciliation to find.
func TestWhatComesAfterTheBrokerLostItsMessagesIsHandled(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	server := natstest.New(t)
	ensureWriter(t, server)
	startRelay(t, separatePool(t, pool), connect(t, server, "relay"), messaging.RelayConfig{Logger: quiet})
	startWriter(t, separatePool(t, pool), connect(t, server, "writer"), "one")
	stageMany(t, pool, 200, 200)
	awaitCount(t, pool, 200, sqlCountEffects)
	natstest.LoseMessages(t, server)
	stage(t, pool, messaging.New("afterwards", 1, changed{N: 1}))
	awaitCount(t, pool, 201, sqlCountEffects)
	status, err := connect(t, server, "reader").Status(t.Context())
	if err != nil || status.LastSeq > 100 {
		t.Errorf("the last sequence is %d (%v): the broker has lost nothing", status.LastSeq, err)
	}
}
