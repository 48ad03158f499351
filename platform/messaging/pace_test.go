package messaging_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/pgtest"
)

// What has no answer while others do is at fault itself: it backs off with its
// aggregate, nobody else waits for it, it keeps its order, and comes back.
func TestAnEventThatAloneHasNoAnswerBacksOffAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 100, 10)
	broker := newRecorder()
	var answers atomic.Bool
	broker.setAnswer(func(m messaging.Message) error {
		if m.Key == "thing/thing-7" && !answers.Load() {
			return messaging.ErrUnknownOutcome
		}
		return nil
	})
	startRelay(t, pool, broker, messaging.RelayConfig{})
	awaitCount(t, pool, 90, sqlCountPublished)
	awaitCount(t, pool, 1, `SELECT count(*) FROM message_outbox_held WHERE aggregate_id = 'thing-7' AND state = 'backoff' AND attempts > 0 AND last_error <> ''
		AND id = (SELECT min(id) FROM message_outbox WHERE aggregate_id = 'thing-7')`)
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_held WHERE aggregate_id <> 'thing-7'`); got != 0 {
		t.Errorf("got %d held events of other aggregates, want none", got)
	}
	// Its followers are held behind it, or come back to the queue with it.
	if got := count(t, pool, `SELECT count(*) FROM message_outbox_state WHERE aggregate_id = 'thing-7' AND state = 'published'`); got != 0 {
		t.Errorf("got %d published events of the held aggregate, want none", got)
	}
	answers.Store(true)
	awaitCount(t, pool, 100, sqlCountPublished)
	awaitCount(t, pool, 0, `SELECT count(*) FROM message_outbox_held`)
	requireOrder(t, broker.messages())
}

// A slow broker stores what it is sent, and answers in time only for few.
type slow struct {
	*recorder
	limit atomic.Int64
	mu    sync.Mutex
	sizes []int
}

func (s *slow) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(messages))
	s.mu.Unlock()
	receipts := s.recorder.Publish(ctx, messages)
	if len(messages) > int(s.limit.Load()) {
		for i := range receipts {
			receipts[i] = messaging.Receipt{Err: messaging.ErrUnknownOutcome}
		}
	}
	return receipts
}

func TestABatchWithoutAnAnswerIsHalvedAndGrowsAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 2000, 40)
	broker := &slow{recorder: newRecorder()}
	broker.limit.Store(30)
	startRelay(t, pool, broker, messaging.RelayConfig{Batch: 160, Logger: quiet})
	eventually(t, 30*time.Second, func() string { return "few events published" }, func() bool { return count(t, pool, sqlCountPublished) >= 200 })
	broker.mu.Lock()
	small := slices.Min(broker.sizes)
	broker.sizes = nil
	broker.mu.Unlock()
	if small > 30 {
		t.Errorf("got batches of %d at least, want some of 30 or less", small)
	}
	broker.limit.Store(1000)
	awaitCount(t, pool, 2000, sqlCountPublished)
	if largest := slices.Max(broker.sizes); largest <= 60 {
		t.Errorf("got batches of %d at most after the broker was quick again, want them to grow", largest)
	}
	requireOrder(t, broker.messages())
}
