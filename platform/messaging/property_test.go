package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

// Whatever arrives, in whatever order and however often, while handlers fail
// now and then: the effects are those of the set of distinct events, each once,
// and never across a gap.
func TestAnyInterleavingLeavesTheEffectsOfTheDistinctEvents(t *testing.T) {
	t.Parallel()
	pool := newEffects(t)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		versions := rapid.IntRange(1, 6).Draw(r, "versions")
		aggregates := rapid.IntRange(1, 3).Draw(r, "aggregates")
		var events [][]byte
		for a := range aggregates {
			for v := 1; v <= versions; v++ {
				events = append(events, messagingtest.Envelope(t, fmt.Sprintf("run-%d-%d", run, a), int64(v), changed{N: v}))
			}
		}
		fails := 0
		name := fmt.Sprint("projection-", run)
		c := messaging.NewConsumer(name, pool, nil, messaging.ConsumerConfig{Logger: quiet, RetryAttempts: 1000, RetryBudget: 1000 * time.Hour})
		messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
			if fails > 0 {
				fails--
				return errors.New("now and then")
			}
			return write(ctx, tx, name, ev)
		})
		c.EveryVersion()
		deliver := func(picked []int) {
			batch := make([][]byte, len(picked))
			for i, n := range picked {
				batch[i] = events[n]
			}
			messagingtest.Deliver(t, c, batch...)
		}
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"deliver", "deliver", "fail", "retry"}).Draw(r, "step") {
			case "deliver":
				deliver(rapid.SliceOfN(rapid.IntRange(0, len(events)-1), 1, 8).Draw(r, "events"))
			case "fail":
				fails = rapid.IntRange(1, 4).Draw(r, "fails")
			case "retry":
				messagingtest.RetryAll(t, pool, c)
			}
		}
		all := make([]int, len(events))
		for i := range all {
			all[i] = i
		}
		deliver(all) // in the end everything has arrived, and nothing fails any more
		fails = 0
		messagingtest.RetryAll(t, pool, c)
		if got := count(t, pool, `SELECT count(*) FROM effect WHERE consumer = $1`, name); got != len(events) {
			r.Fatalf("got %d effects of %d events", got, len(events))
		}
		wrong := count(t, pool, `SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY aggregate ORDER BY seq) AS before FROM effect WHERE consumer = $1) e WHERE n <> before + 1`, name)
		if wrong > 0 {
			r.Fatalf("got %d effects across a gap", wrong)
		}
	})
}
