package natsbroker_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

var orderCreated = messaging.Kind{Context: "order", Type: "OrderCreated", Version: 1, Aggregate: "order"}

// readAll reads to the end of the stream in steps.
func readAll(t *testing.T, r *natsbroker.Reader, step int) (all []*natsbroker.Stored) {
	t.Helper()
	for {
		batch, err := r.Next(within(t), step)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return all
		}
		if len(batch) > step {
			t.Fatalf("got %d messages, asked for at most %d", len(batch), step)
		}
		all = append(all, batch...)
	}
}

func TestAReaderReadsTheKindsItIsAskedForToTheEndAndOn(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	list := messages(500, 20)
	for i := range list {
		if i%5 > 0 { // the wanted ones stand far apart
			list[i].Subject = orderCreated.Subject(i % messaging.Shards)
		}
	}
	publishAll(t, b, list)

	r := b.Reader([]messaging.Kind{orderPaid}, 1)
	var last uint64
	read := readAll(t, r, 7)
	for i, m := range read {
		if want := list[i*5]; !bytes.Equal(m.Data(), want.Data) || m.Subject() != want.Subject || m.Stream() != natsbroker.DefaultStream {
			t.Fatalf("message %d: got %s on %s, want %s", i, m.Data(), m.Subject(), want.Data)
		}
		if m.Sequence() <= last || m.StoredAt().IsZero() || m.Done() {
			t.Fatalf("message %d: sequence %d after %d, stored at %v, done %t", i, m.Sequence(), last, m.StoredAt(), m.Done())
		}
		last = m.Sequence()
	}
	if len(read) != 100 {
		t.Fatalf("got %d messages, want 100", len(read))
	}

	more := messages(3, 3)
	publishAll(t, b, more)
	if got := readAll(t, r, 1000); len(got) != 3 || !bytes.Equal(got[0].Data(), more[0].Data) {
		t.Errorf("after the end: got %d messages, want the 3 new ones", len(got))
	}
	if got := readAll(t, b.Reader([]messaging.Kind{orderPaid, orderCreated}, 401), 1000); len(got) != 103 {
		t.Errorf("both kinds from 401: got %d messages, want 103", len(got))
	}
}

func TestAReaderOfAnEmptyStreamIsAtItsEnd(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	if got := readAll(t, b.Reader([]messaging.Kind{orderPaid}, 1), 10); got != nil {
		t.Errorf("got %d messages", len(got))
	}
}

func TestAReaderLosesNothingWhenTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	publishAll(t, b, messages(20, 20))
	r := b.Reader([]messaging.Kind{orderPaid}, 1)
	first, err := r.Next(within(t), 10)
	if err != nil || len(first) != 10 {
		t.Fatalf("got %d messages, %v", len(first), err)
	}
	s.Stop()
	if got, err := r.Next(within(t), 10); !errors.Is(err, messaging.ErrUnavailable) {
		t.Fatalf("without a server: got %d messages, %v, want %v", len(got), err, messaging.ErrUnavailable)
	}
	s.Restart(t)
	awaitReady(t, b)
	var rest []*natsbroker.Stored
	poll(t, "the server answers", func() bool {
		rest, err = r.Next(within(t), 10)
		return err == nil
	})
	if len(rest) != 10 || rest[0].Sequence() != 11 {
		t.Errorf("got %d messages from %d, want 10 from 11", len(rest), rest[0].Sequence())
	}
}

func TestWhatIsReadIsTheMessageAsItWasPublished(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	sent := messaging.Message{ID: uuid.Must(uuid.NewV7()), Key: "k", Subject: orderPaid.Subject(3), Data: []byte("{}"), TraceParent: trace}
	publishAll(t, b, []messaging.Message{sent})

	got := readAll(t, b.Reader([]messaging.Kind{orderPaid}, 1), 10)[0]
	if got.Header("traceparent") != trace || got.Header(jetstream.MsgIDHeader) != sent.ID.String() {
		t.Errorf("headers: %v", got.Headers())
	}
	for name := range got.Headers() {
		if !slices.Contains([]string{"traceparent", jetstream.MsgIDHeader, jetstream.ExpectedStreamHeader}, name) {
			t.Errorf("header %s is the server's, not the message's", name)
		}
	}
	if err := got.Retry(0); err != nil || got.Done() {
		t.Errorf("after Retry: %v, done %t", err, got.Done())
	}
	if err := got.Ack(); err != nil || !got.Done() {
		t.Errorf("after Ack: %v, done %t", err, got.Done())
	}
}

// More than one answer may hold: 60 messages of 200 KiB.
func TestAReaderBoundsTheMemoryOfAnAnswer(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	list := messages(60, 60)
	for i := range list {
		list[i].Data = bytes.Repeat([]byte{'x'}, 200<<10)
	}
	publishAll(t, b, list)
	r := b.Reader([]messaging.Kind{orderPaid}, 1)
	first, err := r.Next(within(t), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if rest := readAll(t, r, 1000); len(first)+len(rest) != 60 || len(rest) == 0 {
		t.Errorf("got %d messages at first and %d later, want 60 in at least two answers", len(first), len(rest))
	}
}
