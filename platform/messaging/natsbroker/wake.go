package natsbroker

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// wakeInterval is the shortest time between two hints from one outbox. The
// first goes at once, so it costs an idle system no latency, and a busy one at
// most a thousand messages a second.
const wakeInterval = time.Millisecond

func wakeSubject(database string) string { return "shop.wake." + database }

// Wake returns a function that tells the relays of a database that something
// was committed there. It never blocks and never fails: hints are merged,
// dropped while NATS is away, and replaced by the relay's own polling when
// they are lost. It panics if database cannot be part of a subject.
func (b *Broker) Wake(database string) func() {
	if !clientName.MatchString(database) {
		panic(fmt.Sprintf("natsbroker: database name %q is not a token of a subject", database))
	}
	hints := make(chan struct{}, 1)
	b.wakers.Go(func() {
		for {
			select {
			case <-b.closed:
				return
			case <-hints:
			}
			_ = b.nc.Publish(wakeSubject(database), nil) // lost: the relay polls
			select {
			case <-b.closed:
				return
			case <-time.After(wakeInterval):
			}
		}
	})
	return func() { signal(hints) }
}

// OnWake returns a channel that receives the hints for a database, merged into
// one while nobody reads, and a function that ends it.
func (b *Broker) OnWake(database string) (<-chan struct{}, func(), error) {
	if !clientName.MatchString(database) {
		return nil, nil, fmt.Errorf("listen for hints: database name %q is not a token of a subject", database)
	}
	hints := make(chan struct{}, 1)
	inbox, err := b.nc.Subscribe(wakeSubject(database), func(*nats.Msg) { signal(hints) })
	if err != nil {
		return nil, nil, fmt.Errorf("listen for hints of %s: %w", database, unavailable(err))
	}
	stop := func() { _ = inbox.Unsubscribe() } // closed already: as good
	return hints, stop, nil
}
