package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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

// takeSizes returns the sizes of the batches since the last call.
func (s *slow) takeSizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sizes := s.sizes
	s.sizes = nil
	return sizes
}

func TestABatchWithoutAnAnswerIsHalvedAndGrowsAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 2000, 40)
	broker := &slow{recorder: newRecorder()}
	broker.limit.Store(30)
	startRelay(t, pool, broker, messaging.RelayConfig{Batch: 160, Logger: quiet})
	eventually(t, 30*time.Second, func() string { return "few events published" }, func() bool { return count(t, pool, sqlCountPublished) >= 200 })
	if small := slices.Min(broker.takeSizes()); small > 30 {
		t.Errorf("got batches of %d at least, want some of 30 or less", small)
	}
	broker.limit.Store(1000)
	awaitCount(t, pool, 2000, sqlCountPublished)
	if largest := slices.Max(broker.takeSizes()); largest <= 60 {
		t.Errorf("got batches of %d at most after the broker was quick again, want them to grow", largest)
	}
	requireOrder(t, broker.messages())
}

// Who commits late waits for one batch: it must not take long, unless there is
// so much to do that everybody waits anyway.
func TestTheSizeOfABatchFollowsItsTimeUntilTheBacklogPersists(t *testing.T) {
	t.Parallel()
	type answer = messaging.BatchAnswer
	const quick, slow = 10 * time.Millisecond, time.Second
	full := func(took time.Duration) answer { return answer{Rows: 1000, Took: took} }
	tests := map[string]struct {
		answers []answer
		want    []int
	}{
		"quick ones double":              {[]answer{full(quick), full(quick), full(quick)}, []int{250, 500, 1000, 1000}},
		"one in time grows to that time": {[]answer{full(100 * time.Millisecond)}, []int{250, 375}},
		"a slow one is cut to that time": {[]answer{full(quick), full(quick), full(300 * time.Millisecond)}, []int{250, 500, 1000, 500}},
		"no slowness makes them tiny":    {[]answer{full(slow), full(slow)}, []int{250, 250, 250}},
		"eight full ones are a backlog": {
			[]answer{full(slow), full(slow), full(slow), full(slow), full(slow), full(slow), full(slow), full(slow), full(slow), full(slow)},
			[]int{250, 250, 250, 250, 250, 250, 250, 250, 250, 500, 1000}},
		"one that is not full ends it": {
			[]answer{full(quick), full(quick), {Rows: 400, Took: quick}, {Rows: 400, Took: quick}, full(quick)},
			[]int{250, 500, 1000, 500, 1000, 1000}},
		"no answer halves them":             {[]answer{{Rows: 250, Unknown: 250, Took: slow}, {Rows: 125, Unknown: 125, Took: slow}}, []int{250, 125, 62}},
		"after that they grow carefully":    {[]answer{{Rows: 250, Unknown: 250, Took: slow}, full(quick), full(quick)}, []int{250, 125, 156, 187}},
		"one without an answer says little": {[]answer{{Rows: 250, Unknown: 1, Took: quick}}, []int{250, 250}},
		"nothing found says nothing":        {[]answer{{}, full(quick)}, []int{250, 250, 500}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := messaging.BatchSizes(1000, tt.answers...); !slices.Equal(got, tt.want) {
				t.Errorf("got sizes %v, want %v", got, tt.want)
			}
		})
	}
}

// What appears while a lane has nothing to do is not taken in one large bite:
// an event that commits right behind it would wait for all of that.
func TestABacklogBeginsWithSmallBatches(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageMany(t, pool, 1000, 200)
	broker := &slow{recorder: newRecorder()}
	broker.limit.Store(1000)
	startRelay(t, pool, broker, messaging.RelayConfig{Batch: 400})
	awaitCount(t, pool, 1000, sqlCountPublished)
	if sizes := broker.takeSizes(); sizes[0] > 100 || slices.Max(sizes) <= 100 {
		t.Errorf("got batches of %v, want a quarter of the largest at first, and more then", sizes)
	}
	for i := range 16 { // one after the other: each lane publishes several alone
		stage(t, pool, messaging.New(fmt.Sprint("single-", i), 1, changed{N: i}))
		awaitCount(t, pool, 1001+i, sqlCountPublished)
	}
	broker.takeSizes()
	backlog := make([]messaging.Draft, 1000)
	for i := range backlog {
		backlog[i] = messaging.New(fmt.Sprint("late-", i%200), int64(i/200)+1, changed{N: i})
	}
	stage(t, pool, backlog...)
	awaitCount(t, pool, 2016, sqlCountPublished)
	if first := broker.takeSizes()[0]; first > 100 {
		t.Errorf("got %d events in the first batch after a quiet time, want a quarter of the largest at most", first)
	}
	requireOrder(t, broker.messages())
}

// A read that does not end in time would be the same again and take as long.
func TestAReadThatTakesTooLongIsAskedForLessTheNextTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `LOCK TABLE message_outbox_pending IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	first, next, err := messaging.BatchAfterReading(t.Context(), pool, 200*time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || next != first/2 {
		t.Errorf("got %d events to ask for after %d, %v, want half of them", next, first, err)
	}
}

// What does not fit is transferred all the same: whatever comes of this batch,
// the next read must not begin with as many.
func TestABatchThatDoesNotFitIsRememberedBeforeItIsPublished(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	stageLarge(t, pool, 100)
	first, next, err := messaging.BatchAfterReading(t.Context(), pool, time.Minute)
	if err != nil || next > 32 {
		t.Errorf("got %d events to ask for after %d, %v, want no more than fit", next, first, err)
	}
}

// A batch may hold a thousand events, and an event a quarter of a megabyte.
func TestABatchHoldsNoMoreThanARelayHasMemoryFor(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	const events = 200 // in one shard, so that one batch could hold them all: 50 MB
	stageLarge(t, pool, events)
	var largest atomic.Int64
	broker := &measured{recorder: newRecorder(), largest: &largest}
	startRelay(t, pool, broker, messaging.RelayConfig{})
	awaitCount(t, pool, events, sqlCountPublished)
	if got := largest.Load(); got > 32*messaging.MaxEventBytes {
		t.Errorf("got %d bytes in one batch, want 8 MiB at most", got)
	}
	requireOrder(t, broker.messages())
}

// stageLarge commits n events of one aggregate, each as large as may be.
func stageLarge(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	large := strings.Repeat("x", messaging.MaxEventBytes-1000)
	for first := 0; first < n; first += 10 {
		drafts := make([]messaging.Draft, 10)
		for i := range drafts {
			drafts[i] = messaging.New("thing-1", int64(first+i+1), changed{N: first + i, Note: large})
		}
		stage(t, pool, drafts...)
	}
}

// measured notes the bytes of the largest batch.
type measured struct {
	*recorder
	largest *atomic.Int64
}

func (m *measured) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	bytes := int64(0)
	for i := range messages {
		bytes += int64(len(messages[i].Data))
	}
	for have := m.largest.Load(); bytes > have && !m.largest.CompareAndSwap(have, bytes); have = m.largest.Load() {
	}
	return m.recorder.Publish(ctx, messages)
}

func TestARelayRefusesSettingsThatCannotWorkByName(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "messaging")
	for want, cfg := range map[string]messaging.RelayConfig{
		"lease of 1ms":            {Lease: time.Millisecond},
		"lease of 2m1s":           {Lease: 121 * time.Second},
		"batch of 1001":           {Batch: 1001},
		"batch of -1":             {Batch: -1},
		"publish timeout of 1m0s": {PublishTimeout: time.Minute},
		"poll of -1ns":            {Poll: -1},
		"neither link nor child":  {TraceParent: "parent"},
	} {
		if _, err := messaging.NewRelay(pool, newRecorder(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", cfg, err, want)
		}
	}
}
