package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"orderpaid/platform/faults"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/pgtest"
	"orderpaid/services/points"
)

// C36: points dies on the same events again and again without ever answering.
// A broker that counts deliveries and gives up would leave them on the stream
// for nobody.
func TestEventsWhoseConsumerDiesAgainAndAgainAreDeliveredStill(t *testing.T) {
	t.Parallel()
	l := newLineAt(t, pgtest.Durable(t), natstest.New(t).URL(), natsbroker.Topology{AckWait: time.Second})
	l.relay(t, 1)
	l.pay(t, 20)
	eventually(t, time.Minute, "all is on the stream", func() bool { return pending(t, l.orderDB) == 0 })
	for n := range 7 { // more often than any default of a limit
		l.points(t, n+1, faults.Env+"=consumer.before_commit").awaitDeath(t)
	}
	died := time.Now()
	l.points(t, 8)
	l.requireOnce(t, died)
}

// C42: the stream is gone, and something that is no stream answers in its
// place. An event counts as published only with the receipt of the stream.
func TestAnAnswerThatIsNoReceiptPublishesNothing(t *testing.T) {
	t.Parallel()
	l := newLine(t, pgtest.Durable(t))
	if err := jetStream(t, l.natsURL).DeleteStream(t.Context(), natsbroker.DefaultStream); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{}, 1000)
	nc, err := nats.Connect(l.natsURL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.Subscribe("shop.events.>", func(m *nats.Msg) {
		if m.Reply != "" && m.Respond([]byte(`{"thanks":"I have it"}`)) == nil {
			select {
			case answered <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	l.pay(t, 20)
	l.relay(t, 1)
	for range 40 { // each event once, and some again
		select {
		case <-answered:
		case <-time.After(time.Minute):
			t.Fatal("the relay does not ask again")
		}
	}
	if got := count(t, l.orderDB, `SELECT count(*) FROM message_outbox_publication`); got != 0 {
		t.Errorf("%d events count as published, want none", got)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	ensureTopology(t, l.natsURL, points.Subscriptions()...)
	back := time.Now()
	l.points(t, 1)
	l.requireOnce(t, back)
}

// C18: the broker thinks that an event is lost while its handler is still at work,
// and delivers it again, and again.
func TestAHandlerSlowerThanTheAcknowledgementWaitHasOneEffect(t *testing.T) {
	t.Parallel()
	pool, broker, staged := published(t, 5)
	broker.AckWait = 20 * time.Millisecond
	consumer := messaging.NewConsumer(writer, pool, broker, messaging.ConsumerConfig{Group: 1})
	messaging.Handle(consumer, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[stepped]) error {
		_, err := tx.Exec(ctx, `WITH slow AS MATERIALIZED (SELECT pg_sleep(0.2)) INSERT INTO effect SELECT $1 FROM slow`, ev.EventID)
		return err
	})
	for _, found := range effects(t, pool, staged, consumer) {
		t.Error(found)
	}
}
