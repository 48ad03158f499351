package messaging_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/pgtest"
)

// BenchmarkInbox measures a group of deliveries on its way through a consumer
// whose handler does nothing: decoding, the fence, the inbox rows, the commit.
// That is what exactly one effect costs; scripts/bench measures real handlers
// behind a real broker.
//
// The database of tests does not sync, so a commit costs less here than it
// does in earnest. Each iteration also takes the consumer's place, leaves it,
// and looks for failures of its events, which a running consumer knows that it
// has none of.
func BenchmarkInbox(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("new/group=%d", size), func(b *testing.B) { benchmarkInbox(b, size, false) })
	}
	b.Run("duplicates/group=1000", func(b *testing.B) { benchmarkInbox(b, 1000, true) })
}

func benchmarkInbox(b *testing.B, size int, again bool) {
	pool := pgtest.New(b, "messaging")
	consumer := messaging.NewConsumer("bench", pool, nil, messaging.ConsumerConfig{})
	applied := 0
	messaging.HandleBatch(consumer, func(_ context.Context, _ pgx.Tx, evs []messaging.Event[changed]) error {
		applied += len(evs)
		return nil
	})
	group := newGroup(b, size, 0)
	messagingtest.Deliver(b, consumer, group...) // opens sessions and plans statements
	applied = 0
	rounds := 0
	b.ReportAllocs()
	for b.Loop() {
		rounds++
		if !again {
			b.StopTimer()
			group = newGroup(b, size, rounds)
			b.StartTimer()
		}
		if answers := messagingtest.Deliver(b, consumer, group...); !messagingtest.AllAcked(answers) {
			b.Fatal("a delivery was not acknowledged")
		}
	}
	want := rounds * size
	if again {
		want = 0
	}
	if applied != want {
		b.Fatalf("got %d effects, want %d", applied, want)
	}
	b.ReportMetric(float64(rounds*size)/b.Elapsed().Seconds(), "events/s")
}

// newGroup encodes events that no consumer has seen.
func newGroup(b *testing.B, size, round int) [][]byte {
	b.Helper()
	group := make([][]byte, size)
	for i := range group {
		group[i] = messagingtest.Envelope(b, fmt.Sprintf("thing-%d-%d", round, i), 1, changed{N: i, Note: "an event of the benchmark"})
	}
	return group
}
