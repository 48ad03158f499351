package natstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"orderpaid/platform/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestARestartKeepsAddressAndMessages(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	address := s.URL()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream := open(t, ctx, s)
	if _, err := stream.publish(ctx); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	if got, want := s.URL(), address; got != want {
		t.Errorf("the address is %s, want %s", got, want)
	}
	again := open(t, ctx, s)
	ack, err := again.publish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ack.Sequence, uint64(2); got != want {
		t.Errorf("the next sequence is %d, want %d", got, want)
	}
}

type stream struct{ jetstream.JetStream }

func open(t *testing.T, ctx context.Context, s *natstest.Server) stream {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "TEST", Subjects: []string{"test"}}); err != nil {
		t.Fatal(err)
	}
	return stream{js}
}

func (s stream) publish(ctx context.Context) (*jetstream.PubAck, error) {
	return s.Publish(ctx, "test", nil)
}
