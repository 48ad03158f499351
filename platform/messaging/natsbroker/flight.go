package natsbroker

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A flight is a list of messages that were published one by one, and what has
// become of each. One goroutine sends and waits; answers arrive on another.
type flight struct {
	b       *Broker
	number  uint64
	prefix  string          // of the subjects to which the answers go
	lost    <-chan struct{} // the present TCP connection; only the sender looks
	changed chan struct{}   // what the sender waits for has happened

	mu       sync.Mutex
	outcomes []outcome // by position; of those that are not under way
	under    []bool    // under way: sent, and without an answer
	open     int       // how many are
	most     int       // the sender waits until no more are open, ...
	need     int       // ... and until this one is not; -1: any
	waiting  bool
}

// outcome is what became of one message: stored, if err is nil.
type outcome struct {
	sequence  uint64
	duplicate bool
	err       error
}

// sending notes that message n is under way, and returns the subject to which
// its answer must go. It comes before the sending: the answer can be quick.
func (f *flight) sending(n int) (reply string) {
	f.mu.Lock()
	f.under[n] = true
	f.open++
	f.mu.Unlock()
	var text [64]byte
	return string(strconv.AppendInt(append(text[:0], f.prefix...), int64(n), 10))
}

// fail ends message n, which was not sent.
func (f *flight) fail(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcomes[n].err = err
	if f.under[n] {
		f.under[n] = false
		f.open--
	}
}

// answered ends message n. An answer to what is not under way changes nothing:
// it comes too late, twice, or from somebody else.
func (f *flight) answered(n int, o outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n < 0 || n >= len(f.under) || !f.under[n] {
		return
	}
	f.under[n] = false
	f.open--
	f.outcomes[n] = o
	if f.waiting && f.ready() {
		f.waiting = false
		f.changed <- struct{}{} // has room: one for each time that waiting is set
	}
}

func (f *flight) ready() bool {
	return f.open <= f.most && (f.need < 0 || !f.under[f.need])
}

// awaitRoom waits while the window is full, until half of it is free: to wake
// for each single answer would cost more than the sending.
func (f *flight) awaitRoom(ctx context.Context) {
	f.mu.Lock()
	full := f.open >= window
	f.mu.Unlock()
	if full {
		f.wait(ctx, window/2, -1)
	}
}

// await waits until message n is not under way.
func (f *flight) await(ctx context.Context, n int) { f.wait(ctx, window, n) }

// awaitAll waits until no message is under way.
func (f *flight) awaitAll(ctx context.Context) { f.wait(ctx, 0, -1) }

// wait gives up what has no answer when the connection breaks, when ctx is
// done, and when not one answer has come for as long as one attempt may take.
func (f *flight) wait(ctx context.Context, most, need int) {
	if f.isReady(most, need) {
		return
	}
	silence := time.NewTimer(f.b.cfg.AttemptTimeout)
	defer silence.Stop()
	for open := f.stillOpen(); ; {
		select {
		case <-f.changed:
			return
		case <-f.lost:
			f.giveUp(unknown(errBroken))
			f.lost = f.b.connection()
			return
		case <-ctx.Done():
			f.giveUp(unknown(ctx.Err()))
			return
		case <-silence.C:
			now := f.stillOpen()
			if now == open {
				f.giveUp(unknown(nats.ErrTimeout))
				return
			}
			open = now
			silence.Reset(f.b.cfg.AttemptTimeout)
		}
	}
}

func (f *flight) isReady(most, need int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most, f.need = most, need
	f.waiting = !f.ready()
	return !f.waiting
}

func (f *flight) stillOpen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// giveUp ends everything that is under way.
func (f *flight) giveUp(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.waiting { // the last answer was quicker: take its token
		<-f.changed
	}
	f.waiting = false
	for n, under := range f.under {
		if under {
			f.under[n] = false
			f.outcomes[n].err = err
		}
	}
	f.open = 0
}
