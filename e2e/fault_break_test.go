package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/pgtest"
)

// breakEnv names the one mistake that TestEachClassicMistakeIsSeen does not
// hide: what it breaks then fails the test. See scripts/faults.
const breakEnv = "ORDERPAID_BREAK"

// A mistake is a classic one. run lets a small system do the same work the
// right way or the wrong way, and returns what its end state shows: events
// lost, applied twice, or reversed.
//
// The product knows nothing of this. What is wrong is a wrapper around one of
// its parts, a handler, or a few lines that stand where a part would.
type mistake struct {
	name string
	run  func(t *testing.T, wrong bool) (found []string)
}

// docs/03-failure-matrix.md has a row for each.
var mistakes = []mistake{
	{"mark_before_ack", markBeforeAck},
	{"ack_before_commit", ackBeforeCommit},
	{"effect_outside_the_transaction", effectOutside},
	{"select_then_insert", selectThenInsert},
	{"one_inbox_for_all", oneInboxForAll},
	{"nak_without_delay", nakWithoutDelay},
	{"row_claims", rowClaims},
}

// silent is for consumers that fail on purpose, many times.
var silent = slog.New(slog.DiscardHandler)

// A suite that would stay green with the mistake in it proves nothing.
func TestEachClassicMistakeIsSeen(t *testing.T) {
	t.Parallel()
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if os.Getenv(breakEnv) == m.name {
				for _, found := range m.run(t, true) {
					t.Error(found)
				}
				return
			}
			if found := m.run(t, false); len(found) > 0 {
				t.Errorf("done right, and yet: %s", strings.Join(found, "; "))
			}
			found := m.run(t, true)
			if len(found) == 0 {
				t.Error("done wrong, and nothing shows it")
			}
			t.Logf("done wrong: %s", strings.Join(found, "; "))
		})
	}
}

// hasty takes it for granted that the broker takes everything.
type hasty struct{ messaging.Publisher }

func (h hasty) Publish(ctx context.Context, messages []messaging.Message) []messaging.Receipt {
	receipts := h.Publisher.Publish(ctx, messages)
	for i := range receipts {
		receipts[i] = messaging.Receipt{Stream: membroker.Stream, Sequence: uint64(i + 1)}
	}
	return receipts
}

func markBeforeAck(t *testing.T, wrong bool) []string {
	pool, broker := pgtest.New(t, "messaging"), membroker.New()
	busy := true
	broker.OnPublish(func(messaging.Message) membroker.Fault {
		if busy {
			busy = false
			return membroker.Unavailable
		}
		return membroker.None
	})
	staged := stage(t, pool, 20, 2)
	if wrong {
		relayAll(t, pool, hasty{broker})
	} else {
		relayAll(t, pool, broker)
	}
	return lostAndReversed(broker, staged)
}

// watched counts what is fetched and handed back, and makes two of the
// mistakes if told to.
type watched struct {
	messaging.Subscriber
	ackEarly   bool // before anybody has seen the event
	nakAtOnce  bool
	groups     atomic.Int64
	handedBack atomic.Int64
}

func (w *watched) Subscribe(ctx context.Context, sub messaging.Subscription) (messaging.Source, error) {
	source, err := w.Subscriber.Subscribe(ctx, sub)
	return watchedSource{source, w}, err
}

type watchedSource struct {
	messaging.Source
	by *watched
}

func (s watchedSource) Fetch(ctx context.Context, most int) ([]messaging.Delivery, error) {
	deliveries, err := s.Source.Fetch(ctx, most)
	for i, d := range deliveries {
		if s.by.ackEarly {
			err = errors.Join(err, d.Ack())
		}
		deliveries[i] = watchedDelivery{d, s.by}
	}
	s.by.groups.Add(1)
	return deliveries, err
}

type watchedDelivery struct {
	messaging.Delivery
	by *watched
}

func (d watchedDelivery) Ack() error {
	if d.by.ackEarly {
		return nil
	}
	return d.Delivery.Ack()
}

func (d watchedDelivery) Retry(delay time.Duration) error {
	d.by.handedBack.Add(1)
	switch {
	case d.by.ackEarly:
		return nil // it is too late for that
	case d.by.nakAtOnce:
		return d.Delivery.Retry(0)
	}
	return d.Delivery.Retry(delay)
}

// ackBeforeCommit stops a consumer while it has a second group in its hands.
func ackBeforeCommit(t *testing.T, wrong bool) []string {
	pool, broker, staged := published(t, 30)
	subscriber := &watched{Subscriber: broker, ackEarly: wrong}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := newWriter(pool, subscriber, messaging.ConsumerConfig{Group: 10}, func() error {
		eventually(t, 20*time.Second, "a second group is fetched", func() bool { return subscriber.groups.Load() >= 2 })
		stop()
		return nil
	})
	if err := first.Run(ctx); err != nil {
		t.Fatal(err)
	}
	next := newWriter(pool, subscriber, messaging.ConsumerConfig{}, nil)
	return effects(t, pool, staged, next)
}

// effectOutside lets each first attempt fail after the handler has written.
func effectOutside(t *testing.T, wrong bool) []string {
	pool, broker, staged := published(t, 10)
	failed := map[uuid.UUID]bool{}
	consumer := messaging.NewConsumer(writer, pool, broker, messaging.ConsumerConfig{Group: 1, RetryDelay: time.Millisecond, RetryPoll: 10 * time.Millisecond, Logger: silent})
	messaging.Handle(consumer, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[stepped]) error {
		var err error
		if wrong {
			_, err = pool.Exec(ctx, sqlEffect, ev.EventID)
		} else {
			_, err = tx.Exec(ctx, sqlEffect, ev.EventID)
		}
		if err == nil && !failed[ev.EventID] {
			failed[ev.EventID] = true
			err = errors.New("the first attempt fails")
		}
		return err
	})
	return effects(t, pool, staged, consumer)
}

// selectThenInsert applies one event in two transactions at the same time.
func selectThenInsert(t *testing.T, wrong bool) []string {
	pool, _, staged := published(t, 1)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE seen (event_id uuid)`); err != nil {
		t.Fatal(err)
	}
	var both, looked sync.WaitGroup
	looked.Add(2)
	apply := func(tx pgx.Tx) error {
		if !wrong {
			tag, err := tx.Exec(t.Context(), `INSERT INTO message_inbox (consumer, event_id, aggregate_id) VALUES ('writer', $1, '')
				ON CONFLICT DO NOTHING`, staged[0])
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			_, err = tx.Exec(t.Context(), sqlEffect, staged[0])
			return err
		}
		var seen bool
		err := tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM seen WHERE event_id = $1)`, staged[0]).Scan(&seen)
		looked.Done()
		looked.Wait()
		if err != nil || seen {
			return err
		}
		_, err = tx.Exec(t.Context(), `WITH remember AS (INSERT INTO seen VALUES ($1)) INSERT INTO effect VALUES ($1)`, staged[0])
		return err
	}
	for range 2 {
		both.Go(func() {
			if err := pgx.BeginFunc(t.Context(), pool, apply); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	return effects(t, pool, staged, nil)
}

// oneInboxForAll lets two consumers remember under one name. Each has a
// durable of its own, so both get every event.
func oneInboxForAll(t *testing.T, wrong bool) []string {
	pool, broker, staged := published(t, 5)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE mail (event_id uuid)`); err != nil {
		t.Fatal(err)
	}
	found := effects(t, pool, staged, newWriter(pool, broker, messaging.ConsumerConfig{}, nil))

	name := "mailer"
	if wrong {
		name = writer
	}
	again := membroker.New(messaging.Subscription{Durable: name, Kinds: written.Kinds})
	again.Publish(t.Context(), broker.Stored())
	mailer := messaging.NewConsumer(name, pool, again, messaging.ConsumerConfig{})
	messaging.Handle(mailer, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[stepped]) error {
		_, err := tx.Exec(ctx, `INSERT INTO mail VALUES ($1)`, ev.EventID)
		return err
	})
	runUntil(t, mailer, func() bool { return count(t, pool, `SELECT count(*) FROM mail`) == len(staged) })
	if got := count(t, pool, `SELECT count(*) FROM mail`); got != len(staged) {
		found = append(found, fmt.Sprintf("%d of %d mails are lost", len(staged)-got, len(staged)))
	}
	return found
}

// nakWithoutDelay fills the parking space of one aggregate: what no longer
// fits goes back to the broker.
func nakWithoutDelay(t *testing.T, wrong bool) []string {
	pool, broker := pgtest.New(t, "messaging"), membroker.New(written)
	stage(t, pool, 1, 6)
	relayAll(t, pool, broker)
	subscriber := &watched{Subscriber: broker, nakAtOnce: wrong}
	cfg := messaging.ConsumerConfig{Group: 1, MaxParkedPerAggregate: 1, RetryDelay: time.Hour, RetryDelayMax: time.Hour, RetryBudget: 10 * time.Hour, Logger: silent}
	consumer := newWriter(createEffects(t, pool), subscriber, cfg, func() error { return errors.New("it always fails") })
	const tooOften = 50
	runUntil(t, consumer, func() bool { return subscriber.handedBack.Load() >= tooOften })
	if got := subscriber.handedBack.Load(); got >= tooOften {
		return []string{fmt.Sprintf("four events were delivered %d times within seconds", got)}
	}
	return nil
}

// rowClaims lets two relays take single rows, where ours take shards: while
// one of them is slow, the other overtakes it.
func rowClaims(t *testing.T, wrong bool) []string {
	pool, broker := pgtest.New(t, "messaging"), membroker.New()
	staged := stage(t, pool, 1, 2)
	if !wrong {
		relayAll(t, pool, broker)
		return lostAndReversed(broker, staged)
	}
	claimed, overtaken := make(chan struct{}), make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		claimRow(t, pool, broker, func() { close(claimed); <-overtaken })
	})
	both.Go(func() {
		<-claimed
		claimRow(t, pool, broker, func() {})
		close(overtaken)
	})
	both.Wait()
	return lostAndReversed(broker, staged)
}

// claimRow publishes the oldest row that nobody has locked.
func claimRow(t *testing.T, pool *pgxpool.Pool, broker *membroker.Broker, beforePublish func()) {
	beforePublish = sync.OnceFunc(beforePublish)
	defer beforePublish() // whoever waits for it must not wait for ever
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		m := messaging.Message{Key: "aggregate"}
		err := tx.QueryRow(t.Context(), `SELECT o.event_id, o.subject, o.payload FROM message_outbox_pending p JOIN message_outbox o ON o.event_id = p.event_id
			ORDER BY p.id LIMIT 1 FOR UPDATE OF p SKIP LOCKED`).Scan(&m.ID, &m.Subject, &m.Data)
		if err != nil {
			return err
		}
		beforePublish()
		if receipt := broker.Publish(t.Context(), []messaging.Message{m})[0]; receipt.Err != nil {
			return receipt.Err
		}
		_, err = tx.Exec(t.Context(), `DELETE FROM message_outbox_pending WHERE event_id = $1`, m.ID)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
