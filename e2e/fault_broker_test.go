package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/demo"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/services/points"
)

// C39: somebody deletes the durable while points runs, and makes it again. A
// new one starts at the beginning of the stream; the inbox knows all of it.
func TestADurableDeletedAndMadeAgainRepeatsNothing(t *testing.T) {
	t.Parallel()
	l := newLine(t, pgtest.Durable(t))
	l.underway(t, 300)
	l.settled(t)
	js := jetStream(t, l.natsURL)
	if err := js.DeleteConsumer(t.Context(), natsbroker.DefaultStream, points.Subscriptions()[0].Durable); err != nil {
		t.Fatal(err)
	}
	l.pay(t, 100)
	eventually(t, time.Minute, "the relay goes on", func() bool { return pending(t, l.orderDB) == 0 })
	deleted := time.Now()
	ensureTopology(t, l.natsURL, points.Subscriptions()...)
	l.requireOnce(t, deleted)
	requireDrained(t, js)
}

// C40: after the broker's window an event that is published again is on the
// stream twice.
func TestAnEventPublishedAgainAfterTheWindowIsBookedOnce(t *testing.T) {
	t.Parallel()
	l := newLineAt(t, pgtest.Durable(t), natstest.New(t).URL(), natsbroker.Topology{Duplicates: 500 * time.Millisecond})
	l.underway(t, 50)
	l.settled(t)
	eventually(t, time.Minute, "every event is on the stream twice", func() bool {
		if pending(t, l.orderDB) > 0 {
			return false
		}
		audit, err := demo.AuditStream(t.Context(), l.natsURL)
		if err != nil {
			t.Fatal(err)
		}
		if audit.Copies >= 50 {
			return true
		}
		if _, err := messaging.NewHistory(l.orderDB).Republish(t.Context(), l.staged, mei); err != nil {
			t.Fatal(err)
		}
		return false
	})
	requireDrained(t, jetStream(t, l.natsURL))
	l.requireOnce(t, time.Now())
}

// C41: a bridge or a careless tool publishes the same event under message ids
// of its own. The identity of an event is in its bytes.
func TestOneEventUnderThreeMessageIDsIsBookedOnce(t *testing.T) {
	t.Parallel()
	l := newLine(t, pgtest.Durable(t))
	l.underway(t, 20)
	l.settled(t)
	js := jetStream(t, l.natsURL)
	rows, err := l.orderDB.Query(t.Context(), `SELECT subject, payload FROM message_outbox`)
	if err != nil {
		t.Fatal(err)
	}
	var subject string
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&subject, &payload}, func() error {
		for n := range 3 {
			m := &nats.Msg{Subject: subject, Data: slices.Clone(payload), Header: nats.Header{"Nats-Msg-Id": {fmt.Sprintf("%s-%d", payload[:60], n)}}}
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	requireDrained(t, js)
	l.requireOnce(t, time.Now())
}

// A stream at its limit refuses what comes. That is nobody's fault: no event
// has an attempt counted against it, and all flow when there is room.
// C80, with a relay.
func TestAFullStreamMakesTheOutboxWaitAndCountsAgainstNoEvent(t *testing.T) {
	t.Parallel()
	url := natstest.New(t).URL()
	l := newLineAt(t, pgtest.Durable(t), url, natsbroker.Topology{MaxBytes: 256 << 10})
	l.underway(t, 2000)
	awaitFull(t, url)
	for what, sql := range map[string]string{
		"events with an attempt against them": `SELECT count(*) FROM message_outbox_pending WHERE attempts > 0`,
		"events put aside":                    `SELECT count(*) FROM message_outbox_held`,
	} {
		if got := count(t, l.orderDB, sql); got != 0 {
			t.Errorf("%d %s, want none", got, what)
		}
	}
	if pending(t, l.orderDB) == 0 {
		t.Fatal("the stream was not full")
	}
	err := natsbroker.EnsureTopology(t.Context(), url, natsbroker.Topology{MaxBytes: 64 << 20, Update: true, Subscriptions: points.Subscriptions()})
	if err != nil {
		t.Fatal(err)
	}
	l.requireOnce(t, time.Now())
}

// awaitFull returns when the stream has not grown for a while.
func awaitFull(t *testing.T, url string) {
	t.Helper()
	js, stored, since := jetStream(t, url), uint64(0), time.Now()
	eventually(t, time.Minute, "the stream is full", func() bool {
		stream, err := js.Stream(t.Context(), natsbroker.DefaultStream)
		if err != nil {
			t.Fatal(err)
		}
		if now := stream.CachedInfo().State.Msgs; now != stored {
			stored, since = now, time.Now()
		}
		return stored > 0 && time.Since(since) > 2*time.Second
	})
}

// C21: five relays start at the same moment, with a backlog and with held rows
// that are due. Each event reaches the broker once.
func TestFiveRelaysThatStartAtOncePublishEachEventOnce(t *testing.T) {
	t.Parallel()
	l := newLine(t, pgtest.Durable(t))
	l.pay(t, 1200)
	_, err := l.orderDB.Exec(t.Context(), `
		WITH due AS (DELETE FROM message_outbox_pending WHERE event_id IN (SELECT event_id FROM message_outbox_pending ORDER BY id LIMIT 200) RETURNING *)
		INSERT INTO message_outbox_held (shard, id, event_id, aggregate_type, aggregate_id, state, attempts, available_at, last_error)
		SELECT d.shard, d.id, d.event_id, o.aggregate_type, o.aggregate_id, 'backoff', 1, now(), 'no answer'
		  FROM due d JOIN message_outbox o ON o.event_id = d.event_id`)
	if err != nil {
		t.Fatal(err)
	}
	l.points(t, 1)
	for n := range 5 { // with the usual lease: one that ends while this machine is busy makes an honest repetition
		l.relay(t, n+1, "RELAY_LEASE=10s")
	}
	l.requireOnce(t, time.Now())
	if got := count(t, l.orderDB, `SELECT count(*) FROM message_outbox_publication WHERE duplicate`); got != 0 {
		t.Errorf("%d events were sent more than once, want none", got)
	}
}

// C22: fifty awards to one user, three replicas, one balance.
func TestFiftyAwardsToOneUserAreExact(t *testing.T) {
	t.Parallel()
	l := newLine(t, pgtest.Durable(t))
	for n := range 3 {
		l.points(t, n+1)
		l.relay(t, n+1)
	}
	for l.orders < 50 { // a transaction each, so that they come one by one
		id := fmt.Sprintf("ord_%032x", l.orders)
		l.commit(t, []messaging.Draft{messaging.New(id, 2, orderPaid{id, "u-one", "pay-" + id, 3, time.Now()})})
		l.orders, l.total = l.orders+1, l.total+3
	}
	l.requireOnce(t, time.Now())
	if got := count(t, l.pointsDB, `SELECT balance FROM points_balance WHERE user_id = 'u-one'`); got != 150 {
		t.Errorf("the balance is %d, want 150", got)
	}
}

// Everything comes twice, and in the reverse order: a projection still applies
// each version once, and in order.
func TestEveryMessageTwiceAndInReverseIsAppliedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	const aggregates, versions = 10, 5
	pool, broker := createEffects(t, pgtest.New(t, "messaging")), membroker.New(written)
	staged := stage(t, pool, aggregates, versions)
	relayAll(t, pool, broker)
	for sequence := uint64(len(staged)); sequence > 0; sequence-- {
		broker.DeliverNext(writer, sequence, sequence)
	}
	newest, reversed := map[string]int{}, 0
	consumer := messaging.NewConsumer(writer, pool, broker, messaging.ConsumerConfig{RetryPoll: 5 * time.Millisecond})
	consumer.EveryVersion()
	messaging.Handle(consumer, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[stepped]) error {
		if ev.Data.Step != newest[ev.AggregateID]+1 {
			reversed++
		}
		newest[ev.AggregateID] = ev.Data.Step
		_, err := tx.Exec(ctx, sqlEffect, ev.EventID)
		return err
	})
	for _, found := range effects(t, pool, staged, consumer) {
		t.Error(found)
	}
	if reversed > 0 {
		t.Errorf("%d versions were applied out of order", reversed)
	}
}

func jetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// requireDrained waits until points has been given, and has answered,
// everything on the stream.
func requireDrained(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	eventually(t, time.Minute, "points has answered everything", func() bool {
		durable, err := js.Consumer(t.Context(), natsbroker.DefaultStream, points.Subscriptions()[0].Durable)
		if err != nil {
			t.Fatal(err)
		}
		info := durable.CachedInfo()
		return info.NumPending == 0 && info.NumAckPending == 0
	})
}
