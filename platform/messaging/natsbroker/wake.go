package natsbroker

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"orderpaid/platform/messaging"
)

// wakeInterval is the shortest time between two hints from one outbox. The
// first goes at once, so it costs an idle system no latency, and a busy one at
// most a thousand messages a second.
const wakeInterval = time.Millisecond

func wakeSubject(database string) string { return "shop.wake." + database }

// Wake returns a function that tells the relays of a database that something
// was committed there, and to which shards. It never blocks and never fails:
// hints are merged, dropped while NATS is away, and replaced by the relay's own
// polling when they are lost. It panics if database cannot be part of a subject.
func (b *Broker) Wake(database string) func(messaging.ShardSet) {
	if !clientName.MatchString(database) {
		panic(fmt.Sprintf("natsbroker: database name %q is not a token of a subject", database))
	}
	hints := newHints()
	b.wakers.Go(func() {
		for {
			select {
			case <-b.closed:
				return
			case shards := <-hints.out:
				_ = b.nc.Publish(wakeSubject(database), encodeHint(shards)) // lost: the relay polls
			}
			select {
			case <-b.closed:
				return
			case <-time.After(wakeInterval):
			}
		}
	})
	return hints.add
}

// OnWake returns a channel that receives the hints for a database, merged into
// one while nobody reads, and a function that ends it.
func (b *Broker) OnWake(database string) (<-chan messaging.ShardSet, func(), error) {
	if !clientName.MatchString(database) {
		return nil, nil, fmt.Errorf("listen for hints: database name %q is not a token of a subject", database)
	}
	hints := newHints()
	inbox, err := b.nc.Subscribe(wakeSubject(database), func(m *nats.Msg) { hints.add(decodeHint(m.Data)) })
	if err != nil {
		return nil, nil, fmt.Errorf("listen for hints of %s: %w", database, unavailable(err))
	}
	stop := func() { _ = inbox.Unsubscribe() } // closed already: as good
	return hints.out, stop, nil
}

// A hint is the set of shards in hexadecimal.
func encodeHint(shards messaging.ShardSet) []byte {
	return strconv.AppendUint(nil, uint64(shards), 16)
}

// decodeHint takes what it cannot read for a hint about every shard.
func decodeHint(data []byte) messaging.ShardSet {
	shards, err := strconv.ParseUint(string(data), 16, 64)
	if err != nil {
		return messaging.AllShards
	}
	return messaging.ShardSet(shards)
}

// hints holds at most one hint, into which later ones are merged.
type hints struct {
	mu  sync.Mutex // of those who add
	out chan messaging.ShardSet
}

func newHints() *hints { return &hints{out: make(chan messaging.ShardSet, 1)} }

func (h *hints) add(shards messaging.ShardSet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case waiting := <-h.out:
		shards |= waiting
	default:
	}
	h.out <- shards // there is room: only who holds mu adds
}
