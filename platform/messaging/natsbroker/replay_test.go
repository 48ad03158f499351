package natsbroker_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

func TestAReplayReadsItsKindsInTheStreamsOrder(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	list := messages(900, 20)
	for i := range list {
		if i%3 > 0 {
			list[i].Subject = orderCreated.Subject(i % messaging.Shards)
		}
	}
	publishAll(t, b, list)

	both := []messaging.Kind{orderPaid, orderCreated}
	tests := []struct {
		name        string
		kinds       []messaging.Kind
		span        natsbroker.Span
		first, want int // the place of the first one in list, and how many there are
	}{
		{"one kind", both[:1], natsbroker.Span{}, 0, 300},
		{"both kinds", both, natsbroker.Span{From: 1}, 0, 900},
		{"from the middle", both, natsbroker.Span{From: 601}, 600, 300},
		{"to the middle", both, natsbroker.Span{To: 600}, 0, 600},
		{"since before all", both, natsbroker.Span{Since: time.Now().Add(-time.Hour)}, 0, 900},
		{"since after all", both, natsbroker.Span{Since: time.Now().Add(time.Hour)}, 0, 0},
		{"until before all", both, natsbroker.Span{Until: time.Now().Add(-time.Hour)}, 0, 0},
		{"one more than the limit", both[:1], natsbroker.Span{Limit: 100}, 0, 101},
	}
	for _, test := range tests { // one after the other: they share the consumer's name
		read, err := b.Replay(within(t), "points-awarder", test.kinds, test.span)
		if err != nil || len(read) != test.want {
			t.Errorf("%s: got %d messages, %v; want %d", test.name, len(read), err, test.want)
			continue
		}
		if len(read) > 0 && !bytes.Equal(read[0].Data(), list[test.first].Data) {
			t.Errorf("%s: the first is %s, want %s", test.name, read[0].Data(), list[test.first].Data)
		}
		for i := 1; i < len(read); i++ {
			if read[i].Sequence() <= read[i-1].Sequence() {
				t.Fatalf("%s: sequence %d stands behind %d", test.name, read[i].Sequence(), read[i-1].Sequence())
			}
		}
	}
}

// A second reader must not take the first one's consumer: the first would stop
// short and call it the end.
func TestTwoReplaysForOneDurableDoNotReadAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	publishAll(t, b, messages(10, 2))
	busy, err := admin(t, s.URL()).CreateConsumer(within(t), natsbroker.DefaultStream, replayConfig())
	if err != nil {
		t.Fatal(err)
	}
	if read, err := b.Replay(within(t), "points-awarder", []messaging.Kind{orderPaid}, natsbroker.Span{}); err == nil {
		t.Errorf("read %d messages beside another replay, want an error", len(read))
	}
	if err := admin(t, s.URL()).DeleteConsumer(within(t), natsbroker.DefaultStream, busy.CachedInfo().Name); err != nil {
		t.Fatalf("the first replay's consumer: %v; want it untouched", err)
	}
	if read, err := b.Replay(within(t), "points-awarder", []messaging.Kind{orderPaid}, natsbroker.Span{}); err != nil || len(read) != 10 {
		t.Errorf("got %d messages, %v; want 10 once the first is done", len(read), err)
	}
}

func replayConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{Name: natsbroker.ReplayConsumer("points-awarder"), FilterSubject: orderPaid.Filter(), AckPolicy: jetstream.AckNonePolicy}
}
