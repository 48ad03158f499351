package natsbroker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

func TestAMuteServerIsNoticedAndDeliveryGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{AckWait: time.Second})
	p := newProxy(t, s)
	b := connect(t, p.url(), natsbroker.Config{PullExpiry: 200 * time.Millisecond})
	source := subscribe(t, b)
	p.set(mute)
	if _, err := source.Fetch(within(t), 1); !errors.Is(err, messaging.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, messaging.ErrUnavailable)
	}
	p.set(honest)
	awaitReady(t, b)
	publishAll(t, b, messages(20, 2))
	fetchAll(t, source, 20)
}

// lockedBuffer collects a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Contains(b.text.Bytes(), []byte(text))
}

// C74: a durable has got another leader, which knows nothing of the requests that
// the one before had. The server says so; two heartbeats need not go missing first.
func TestAfterAChangeOfLeaderMessagesAreAskedForAnew(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	nc := admin(t, s.URL()).Conn()
	requests := make(chan string, 16) // where each wants its answers
	_, err := nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.EVENTS."+awarder.Durable, func(m *nats.Msg) { requests <- m.Reply })
	if err = errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	b := connect(t, s.URL(), natsbroker.Config{PullExpiry: time.Minute})
	source := subscribe(t, b)
	request := func() string {
		select {
		case inbox := <-requests:
			return inbox
		case <-within(t).Done():
			t.Fatal("no request came")
			return ""
		}
	}
	first := request()
	status := nats.NewMsg(first)
	status.Header = nats.Header{"Status": {"409"}, "Description": {"Leadership Change"}}
	begin := time.Now()
	if err := nc.PublishMsg(status); err != nil {
		t.Fatal(err)
	}
	if second := request(); second == first || time.Since(begin) > 10*time.Second {
		t.Errorf("the request %s came after %v, want another than %s, long before a heartbeat is missed", second, time.Since(begin), first)
	}
	publishAll(t, b, messages(3, 3))
	fetchAll(t, source, 3)
}

// A server that sends heartbeats, has messages waiting and does not deliver
// them: known from real ones, and made by none on demand, so the test plays
// the server.
func TestAServerThatHoldsMessagesBackIsAskedFromANewInboxThenAnew(t *testing.T) {
	t.Parallel()
	s := natstest.New(t, func(o *server.Options) { o.JetStream = false })
	nc := admin(t, s.URL()).Conn()
	const expiry = 100 * time.Millisecond
	info, err := json.Marshal(jetstream.ConsumerInfo{Stream: natsbroker.DefaultStream, Name: awarder.Durable, NumPending: 5,
		Config: jetstream.ConsumerConfig{Durable: awarder.Durable, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1,
			AckWait: time.Minute, MaxAckPending: 5000, FilterSubject: orderPaid.Filter()}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = nc.Subscribe("$JS.API.CONSUMER.INFO.EVENTS."+awarder.Durable, func(m *nats.Msg) { _ = m.Respond(info) })
	if err != nil {
		t.Fatal(err)
	}
	inboxes := make(chan string, 1000) // more requests than the test can last for
	_, err = nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.EVENTS."+awarder.Durable, func(m *nats.Msg) {
		inboxes <- m.Reply[:bytes.LastIndexByte([]byte(m.Reply), '.')]
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"100"}, "Description": {"Idle Heartbeat"}}})
		time.AfterFunc(expiry, func() { // fails when the test is over
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"408"}, "Description": {"Request Timeout"}}})
		})
	})
	if err = errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	b, err := natsbroker.Connect(t.Context(), natsbroker.Config{URL: s.URL(), Name: "test", PullExpiry: expiry,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	subscribe(t, b)
	first := <-inboxes
	poll(t, "a new inbox", func() bool { return <-inboxes != first })
	poll(t, "a new connection", func() bool { return log.contains("nats connection restored") })
}
