package natsbroker_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

func TestAServiceMayStartBeforeTheServer(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	s.Stop()
	b := connect(t, s.URL(), natsbroker.Config{})
	if err := b.Ready(t.Context()); !errors.Is(err, messaging.ErrUnavailable) {
		t.Errorf("ready: %v, want %v", err, messaging.ErrUnavailable)
	}
	begin := time.Now()
	for _, r := range b.Publish(within(t), messages(3, 3)) {
		if !errors.Is(r.Err, messaging.ErrUnavailable) {
			t.Errorf("publish: %v, want %v", r.Err, messaging.ErrUnavailable)
		}
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v to say so, want at once", took)
	}
	s.Restart(t)
	awaitReady(t, b)
	publishAll(t, b, messages(3, 3))
	requireStored(t, s, 3) // what was refused while disconnected did not surface later
}

func TestCloseReturnsWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	source := subscribe(t, b)
	s.Stop()
	never := connect(t, s.URL(), natsbroker.Config{})
	begin := time.Now()
	source.Close()
	b.Close()
	never.Close()
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

func TestRefusedCredentialsAreNamedAndNotShown(t *testing.T) {
	t.Parallel()
	s := natstest.New(t, func(o *server.Options) { o.Username, o.Password = "shop", "secret" })
	b := connect(t, strings.Replace(s.URL(), "nats://", "nats://shop:wrong-password@", 1), natsbroker.Config{})
	var err error
	poll(t, "the refusal is told", func() bool {
		err = b.Ready(t.Context())
		return errors.Is(err, nats.ErrAuthorization)
	})
	if !errors.Is(err, messaging.ErrUnavailable) || strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("got %v, want %v without the credentials", err, messaging.ErrUnavailable)
	}
}

// C63: a server that knows nobody for a while, because its users are being
// changed, ends no service: they ask until they are known again.
func TestAServiceThatIsRefusedForAWhileGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	users := new(usersInChange)
	s := natstest.New(t, func(o *server.Options) { o.CustomClientAuthentication = users })
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	source := subscribe(t, b)
	users.gone.Store(true)
	s.Restart(t)
	poll(t, "it is refused again and again", func() bool { return users.refused.Load() >= 5 })
	users.gone.Store(false)
	awaitReady(t, b)
	list := messages(3, 3)
	publishAll(t, b, list)
	fetchAll(t, source, len(list))
}

// usersInChange lets nobody in while they are gone.
type usersInChange struct {
	gone    atomic.Bool
	refused atomic.Int64
}

func (u *usersInChange) Check(server.ClientAuthentication) bool {
	if u.gone.Load() {
		u.refused.Add(1)
		return false
	}
	return true
}

func TestABadConfigurationFailsAtTheStart(t *testing.T) {
	t.Parallel()
	tests := map[string]natsbroker.Config{
		"no name":         {URL: "nats://127.0.0.1:4222"},
		"a dot in a name": {URL: "nats://127.0.0.1:4222", Name: "a.b"},
		"a bad address":   {URL: "nats://me:secret@127.0.0.1:port", Name: "a"},
		"a bad stream":    {URL: "nats://127.0.0.1:4222", Name: "a", Stream: "E VENTS"},
		"a short expiry":  {URL: "nats://127.0.0.1:4222", Name: "a", PullExpiry: time.Millisecond},
		"a bad prefetch":  {URL: "nats://127.0.0.1:4222", Name: "a", Prefetch: -1},
	}
	for name, cfg := range tests {
		b, err := natsbroker.Connect(t.Context(), cfg)
		if err == nil {
			b.Close()
			t.Errorf("%s: connected", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error holds the password: %v", name, err)
		}
	}
}

// C45, C46: hints go over the broker, so that no commit waits for PostgreSQL's
// one lock of notifications, and no session is lost with its LISTEN. A hint
// that is lost costs one poll.
func TestAHintReachesWhoeverListensAndNeverBlocks(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	b := connect(t, s.URL(), natsbroker.Config{})
	hints, stop, err := b.OnWake("shop_order")
	if err != nil {
		t.Fatal(err)
	}
	others, stopOthers, err := b.OnWake("shop_points")
	if err != nil {
		t.Fatal(err)
	}
	defer stopOthers()
	if err := b.Ready(within(t)); err != nil { // the server has heard of both
		t.Fatal(err)
	}
	wake := b.Wake("shop_order")
	var got, want messaging.ShardSet
	for i := range 1000 {
		shard := i % 5
		want = want.With(shard)
		wake(messaging.ShardSet(0).With(shard))
	}
	for got != want { // merged on the way, and none is lost
		select {
		case shards := <-hints:
			got |= shards
		case <-within(t).Done():
			t.Fatalf("hints of shards %x came, want %x", got, want)
		}
	}
	select {
	case <-others:
		t.Error("a hint for another database came")
	default:
	}
	stop()
	s.Stop()
	begin := time.Now()
	for range 1000 {
		wake(messaging.AllShards)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("1000 hints to nobody took %v", took)
	}
	if _, _, err := b.OnWake("no token"); err == nil {
		t.Error("a database name with a blank was taken")
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	ensure(t, s, natsbroker.Topology{})
	b := connect(t, s.URL(), natsbroker.Config{})
	source, err := b.Subscribe(within(t), awarder)
	if err != nil {
		t.Fatal(err)
	}
	fetched := make(chan error, 1)
	go func() {
		_, err := source.Fetch(within(t), 1)
		fetched <- err
	}()
	b.Close()
	b.Close()
	if err := <-fetched; err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("fetch: %v, want that the subscription is closed", err)
	}
	if got := b.Publish(within(t), messages(1, 1))[0].Err; !errors.Is(got, messaging.ErrUnavailable) {
		t.Errorf("publish: %v, want %v", got, messaging.ErrUnavailable)
	}
	if _, err := b.Subscribe(within(t), awarder); err == nil {
		t.Error("a closed broker binds")
	}
}
