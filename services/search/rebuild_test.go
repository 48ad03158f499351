package search

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/postgres"
)

func TestARebuiltIndexIsTheSameAsTheLiveOne(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	random := rand.New(rand.NewPCG(3, 4))
	var events [][]byte
	var versions int64
	for range 150 {
		n := 1 + random.IntN(4)
		events = append(events, life(t, newOrder(), n)...)
		versions += int64(n)
	}
	random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] }) // many wait for an earlier version
	s.publish(t, events...)
	s.follow(t)
	s.await(t, versions)
	before := s.documents(t)

	r := s.rebuild(t)
	if r.Events != int64(len(events)) || r.Carried != 0 || r.Failed != 0 {
		t.Errorf("read %d events of %d, carried %d over, %d failed", r.Events, len(events), r.Carried, r.Failed)
	}
	if got := s.count(t, `SELECT live_slot FROM search_index`); got != 1 {
		t.Errorf("live slot: got %d, want 1", got)
	}
	if diff := cmp.Diff(before, s.documents(t)); diff != "" {
		t.Errorf("-live +rebuilt:\n%s", diff)
	}
	s.requireClean(t)

	s.rebuild(t) // and back into the first slot
	if diff := cmp.Diff(before, s.documents(t)); diff != "" {
		t.Errorf("-live +rebuilt twice:\n%s", diff)
	}
}

// C79: the index is made anew while events come in.
func TestEventsThatArriveDuringARebuildAreAppliedOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var versions atomic.Int64
	var history [][]byte
	for range 400 {
		history = append(history, life(t, newOrder(), 2)...)
	}
	s.publish(t, history...)
	versions.Add(int64(len(history)))
	s.follow(t)

	rebuilt := make(chan struct{})
	var publisher sync.WaitGroup
	publisher.Go(func() {
		for range 500 { // a bound: rebuilt ends it long before
			order := newOrder()
			for _, event := range life(t, order, 4) {
				s.publish(t, event)
				versions.Add(1)
			}
			select {
			case <-rebuilt:
				return
			default:
			}
		}
	})
	s.rebuild(t)
	s.rebuild(t)
	close(rebuilt)
	publisher.Wait()
	s.publish(t, life(t, newOrder(), 4)...) // and the index goes on
	versions.Add(4)
	s.await(t, versions.Load())

	if got, want := s.count(t, `SELECT count(*) FROM message_inbox WHERE consumer = $1`, indexer), int(versions.Load()); got != want {
		t.Errorf("inbox rows: got %d, want %d, one an event", got, want)
	}
	if got := s.count(t, `
		SELECT count(*) FROM order_document d
		  FULL JOIN message_progress p ON p.consumer = $1 AND p.aggregate_id = d.order_id
		 WHERE d.slot = (SELECT live_slot FROM search_index) AND d.version IS DISTINCT FROM p.last_version`, indexer); got != 0 {
		t.Errorf("%d documents are not of the version that the progress says", got)
	}
	if got := s.count(t, `SELECT count(*) FROM order_document WHERE version = 4 AND (refunded_amount <> 300 OR paid_at IS NULL)`); got != 0 {
		t.Errorf("%d documents lack a part of what happened", got)
	}
	if got := s.count(t, `SELECT count(*) FROM message_failure WHERE state IN ('retrying', 'parked', 'open')`); got != 0 {
		t.Errorf("%d failures are left", got)
	}
	s.requireClean(t)
}

// The narrow places, one by one: an event of which the live index knows before
// the rebuild reads it, and one of which the rebuild knows first.
// C79, where it is narrow.
func TestWhatComesBetweenFillingAndSwitchingIsNotLost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	known, unknown := newOrder(), newOrder()
	first, second := life(t, known, 4), life(t, unknown, 4)
	s.publish(t, first[0], second[0])
	s.deliver(t, first[0], second[0])

	r := NewRebuild(s.pool, s.broker)
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.publish(t, slices.Concat(first[1:], second[1:], life(t, newOrder(), 2))...)
	s.deliver(t, first[1:]...)
	if err := r.whetherSwitched(t.Context()); !errors.Is(err, errPauseEnded) {
		t.Errorf("before the switch: got %v, want %v", err, errPauseEnded)
	}
	if err := r.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.whetherSwitched(t.Context()); err != nil {
		t.Errorf("after the switch: %v", err)
	}
	if r.Carried != 0 {
		t.Errorf("carried %d documents over, want none: the stream has them", r.Carried)
	}
	var versions []int64
	for _, d := range s.search(t).Orders {
		versions = append(versions, d.Version)
	}
	slices.Sort(versions)
	if want := []int64{2, 4, 4}; !slices.Equal(versions, want) {
		t.Errorf("versions: got %v, want %v", versions, want)
	}
	before := s.documents(t)
	s.deliver(t, second...)
	if diff := cmp.Diff(before, s.documents(t)); diff != "" {
		t.Errorf("applied twice, -before +after:\n%s", diff)
	}
}

func TestNothingIsIndexedDuringThePause(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := NewRebuild(s.pool, s.broker)
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	epoch, err := r.pause(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	event := life(t, newOrder(), 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.consumer.Apply(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("during the pause: got %v, want %v", err, context.DeadlineExceeded)
	}
	if got := s.found(t); got != nil {
		t.Errorf("found %v", got)
	}
	r.resume(t.Context(), epoch)
	s.deliver(t, event)
	if got := len(s.found(t)); got != 1 {
		t.Errorf("after the pause: found %d orders, want 1", got)
	}
}

// The stream forgets after some days, the index must not.
func TestOrdersOlderThanTheStreamKeepTheirDocuments(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	old, straddling, young := newOrder(), newOrder(), newOrder()
	s.deliver(t, life(t, old, 4)...) // applied, and no longer on the stream
	events := life(t, straddling, 3)
	s.deliver(t, events...)
	s.publish(t, events[2]) // only its last event is
	s.publish(t, life(t, young, 2)...)
	s.deliver(t, life(t, young, 2)...)
	_, err := s.pool.Exec(t.Context(), `UPDATE order_document SET lexemes = '' WHERE order_id = $1`, old) // as an older tokenizer left it
	if err != nil {
		t.Fatal(err)
	}

	r := s.rebuild(t)
	if r.Carried != 2 || r.Failed != 1 {
		t.Errorf("carried %d documents over, %d events failed, want 2 and 1", r.Carried, r.Failed)
	}
	versions := map[string]int64{}
	for _, d := range s.search(t, "q", "登山背包").Orders {
		versions[d.OrderID] = d.Version
	}
	if diff := cmp.Diff(map[string]int64{old: 4, straddling: 3, young: 2}, versions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := s.count(t, `SELECT count(*) FROM message_failure WHERE resolved_at IS NULL`); got != 0 {
		t.Errorf("%d failures are left: the live index has all of these events", got)
	}
	s.deliver(t, refunded(t, straddling, 4, 300)) // and it goes on from where it was
	if got := s.search(t, "q", straddling).Orders[0].Version; got != 4 {
		t.Errorf("version: got %d, want 4", got)
	}
}

// The durable's position is behind everything, the database is new: only the
// stream knows.
func TestALostIndexComesBackFromTheStream(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	order := newOrder()
	events := slices.Concat(life(t, order, 4), life(t, newOrder(), 1))
	poison := with(t, created(t, newOrder(), "u1", "Tent"), func(e *messaging.Envelope) { e.Data = []byte(`{}`) })
	s.publish(t, append(events, poison)...)

	r := s.rebuild(t)
	if r.Failed != 1 || len(s.found(t)) != 2 {
		t.Errorf("%d events failed, found %v, want 1 and two orders", r.Failed, s.found(t))
	}
	if got := s.search(t).IndexedAsOf; got == nil || time.Since(*got) > time.Minute {
		t.Errorf("indexed as of %v", got)
	}
	if got := s.count(t, `SELECT count(*) FROM message_failure WHERE consumer = $1 AND state = 'open'`, indexer); got != 1 {
		t.Errorf("dead letters of the live consumer: got %d, want 1", got)
	}
	s.deliver(t, refunded(t, order, 5, 400)) // the next version is known to be the next
	if got := s.search(t, "q", order).Orders[0].Version; got != 5 {
		t.Errorf("version: got %d, want 5", got)
	}
	before := s.documents(t)
	s.deliver(t, events...) // should the durable be set back after all
	if diff := cmp.Diff(before, s.documents(t)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if got := s.count(t, `SELECT count(*) FROM message_inbox WHERE consumer = $1 AND result = 'rebuilt'`, indexer); got != len(events) {
		t.Errorf("inbox rows that say rebuilt: got %d, want %d", got, len(events))
	}
}

func TestARebuildAheadOfTheLiveConsumerLeavesItOnlyDuplicates(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	order := newOrder()
	events := life(t, order, 4)
	s.deliver(t, events[0])
	s.publish(t, events...)
	s.rebuild(t)
	before := s.documents(t)
	s.follow(t)
	s.publish(t, life(t, newOrder(), 1)...)
	s.await(t, 5) // which comes behind the duplicates
	if diff := cmp.Diff(before, s.documents(t)[:1]); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// What an older program could not apply is put right by rebuilding with a
// newer one.
func TestARebuildResolvesWhatItCouldApply(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	old := messaging.NewConsumer(indexer, s.pool, nil, messaging.ConsumerConfig{})
	old.EveryVersion()
	messaging.HandleBatch(old, s.service.onOrdersPaid) // knows nothing of OrderCreated
	order := newOrder()
	events := life(t, order, 2)
	messagingtest.Deliver(t, old, events...)
	if got := s.count(t, `SELECT count(*) FROM message_failure WHERE state IN ('open', 'parked')`); got != 2 {
		t.Fatalf("failures before: got %d, want 2", got)
	}
	s.publish(t, events...)
	s.rebuild(t)
	if got := s.count(t, `SELECT count(*) FROM message_failure WHERE consumer = $1 AND state = 'resolved' AND resolution = 'rebuilt'`, indexer); got != 2 {
		t.Errorf("resolved failures: got %d, want 2", got)
	}
	if got := s.document(t); got.State != StatePaid {
		t.Errorf("got %+v", got)
	}
}

func TestANewerRebuildTakesOver(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.publish(t, life(t, newOrder(), 2)...)
	older, newer := NewRebuild(s.pool, s.broker), NewRebuild(s.pool, s.broker)
	if err := older.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := newer.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := older.fill(t.Context()); !errors.Is(err, errSuperseded) {
		t.Errorf("the older one writes on: %v", err)
	}
	if err := older.tidy(t.Context()); !errors.Is(err, errSuperseded) {
		t.Errorf("the older one empties the slot: %v", err)
	}
	s.rebuild(t)
	if got := len(s.found(t)); got != 1 {
		t.Errorf("found %d orders, want 1", got)
	}
}

// C79: the old index goes when the new one is there, and not before.
func TestARebuildThatFailsLeavesTheOldIndex(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	events := life(t, newOrder(), 2)
	s.deliver(t, events...)
	s.publish(t, events...)
	before := s.documents(t)

	r := NewRebuild(s.pool, s.broker)
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	epoch, err := r.pause(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.resume(t.Context(), epoch) // as if the pause had run out
	s.deliver(t, life(t, newOrder(), 1)...)
	err = postgres.InTx(t.Context(), s.pool, func(tx pgx.Tx) error { return r.switchOver(t.Context(), tx, epoch) })
	if !errors.Is(err, errPauseEnded) {
		t.Errorf("a switch without a pause: got %v, want %v", err, errPauseEnded)
	}
	if got := s.documents(t); len(got) != 2 || !slices.Contains(got, before[0]) {
		t.Errorf("the live index has changed: %v", got)
	}
	s.rebuild(t) // the next one starts over
	if got := len(s.documents(t)); got != 2 {
		t.Errorf("got %d documents, want 2", got)
	}
	s.requireClean(t)
}

// What comes during the pause may be more than one term allows for: each page
// prolongs it, and a pause that has ended is noticed at the next page.
func TestThePauseLastsForAsLongAsPagesAreCaughtUpWith(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.publish(t, life(t, newOrder(), 2)...)
	r := NewRebuild(s.pool, s.broker)
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	epoch, err := r.pause(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.epoch = epoch
	left := func() (seconds float64) {
		t.Helper()
		if err := s.pool.QueryRow(t.Context(), `SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM consumer_lease WHERE consumer = $1`, indexer).Scan(&seconds); err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	if _, err := s.pool.Exec(t.Context(), `UPDATE consumer_lease SET lease_until = clock_timestamp() + interval '9 s' WHERE consumer = $1`, indexer); err != nil {
		t.Fatal(err)
	}
	if err := r.fill(t.Context()); err != nil || left() < 15 {
		t.Errorf("got %v with %.0f s left, want the pause prolonged", err, left())
	}
	r.resume(t.Context(), epoch)
	s.publish(t, life(t, newOrder(), 1)...)
	if err := r.fill(t.Context()); !errors.Is(err, errPauseEnded) {
		t.Errorf("got %v after the pause, want %v", err, errPauseEnded)
	}
}
