package messaging_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/postgres"
)

// changed is the event of these tests: the n-th change of some aggregate.
type changed struct {
	N    int    `json:"n"`
	Note string `json:"note,omitempty"`
}

func (changed) Kind() messaging.Kind {
	return messaging.Kind{Context: "test", Type: "ThingChanged", Version: 1, Aggregate: "thing"}
}

// closed is a second kind of the same aggregate.
type closed struct {
	N int `json:"n"`
}

func (closed) Kind() messaging.Kind {
	return messaging.Kind{Context: "test", Type: "ThingClosed", Version: 1, Aggregate: "thing"}
}

func newOutbox(t testing.TB, wake func(messaging.ShardSet)) *messaging.Outbox {
	t.Helper()
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "test", Wake: wake})
	if err != nil {
		t.Fatal(err)
	}
	return outbox
}

// stage commits one transaction with these drafts.
func stage(t testing.TB, pool *pgxpool.Pool, drafts ...messaging.Draft) {
	t.Helper()
	outbox := newOutbox(t, nil)
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error { return outbox.Add(t.Context(), tx, drafts...) })
	if err != nil {
		t.Fatalf("stage: %v", err)
	}
}

// stageMany commits n events over as many aggregates as told, versions in
// order, in transactions of 500.
func stageMany(t testing.TB, pool *pgxpool.Pool, n, aggregates int) {
	t.Helper()
	for first := 0; first < n; first += 500 {
		drafts := make([]messaging.Draft, 0, 500)
		for i := first; i < min(first+500, n); i++ {
			drafts = append(drafts, messaging.New(fmt.Sprintf("thing-%d", i%aggregates), int64(i/aggregates)+1, changed{N: i}))
		}
		stage(t, pool, drafts...)
	}
}

// startRelay runs a relay until the test ends or the returned stop is called.
func startRelay(t testing.TB, pool *pgxpool.Pool, pub messaging.Publisher, cfg messaging.RelayConfig) (stop func()) {
	t.Helper()
	relay, err := messaging.NewRelay(pool, pub, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return background(t, relay.Run)
}

// background runs run until the test ends or stop is called, and waits for it.
func background(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("run does not return 20 s after its context was cancelled")
		}
	})
	t.Cleanup(stop)
	return stop
}

// eventually polls until ok or the deadline, and then fails with what describe says.
func eventually(t testing.TB, within time.Duration, describe func() string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, describe())
		}
		<-tick.C
	}
}

func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// awaitCount waits until the query returns want.
func awaitCount(t testing.TB, pool *pgxpool.Pool, want int, sql string, args ...any) {
	t.Helper()
	got := 0
	eventually(t, 30*time.Second, func() string { return fmt.Sprintf("got %d, want %d: %s", got, want, sql) },
		func() bool { got = count(t, pool, sql, args...); return got == want })
}

// recorder is a broker of which a test can decide every answer. It stands for
// what a real one does rarely and never on demand.
type recorder struct {
	mu     sync.Mutex
	stored []messaging.Message
	seen   map[uuid.UUID]uint64
	answer func(m messaging.Message) error // nil stores it
	onCall func()
}

func newRecorder() *recorder {
	return &recorder{seen: map[uuid.UUID]uint64{}}
}

func (r *recorder) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	r.mu.Lock()
	onCall := r.onCall
	r.mu.Unlock()
	if onCall != nil {
		onCall()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	receipts := make([]messaging.Receipt, len(messages))
	behind := map[string]bool{}
	for i, m := range messages {
		var err error
		switch {
		case behind[m.Key]:
			err = messaging.ErrBehind
		case r.answer != nil:
			err = r.answer(m)
		}
		if err != nil {
			behind[m.Key] = true
			receipts[i].Err = err
			continue
		}
		sequence, duplicate := r.seen[m.ID]
		if !duplicate {
			r.stored = append(r.stored, m)
			sequence = uint64(len(r.stored))
			r.seen[m.ID] = sequence
		}
		receipts[i] = messaging.Receipt{Stream: "TEST", Sequence: sequence, Duplicate: duplicate}
	}
	return receipts
}

func (r *recorder) setAnswer(answer func(m messaging.Message) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *recorder) messages() []messaging.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]messaging.Message(nil), r.stored...)
}
