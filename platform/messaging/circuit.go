package messaging

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"orderpaid/platform/postgres"
)

// A circuit notices that it is not the events that are wrong but the consumer:
// a bad release, or a schema that is not there yet. One event after another
// then fails with one cause, and to record them all would park the stream,
// burn every budget, and end in as many dead letters as there were events.
//
// While the circuit is open nothing is read, nothing is retried and nothing is
// counted against any event; what was fetched goes back to the broker. After
// the pause one event is tried: if it fails in the same way, the next pause is
// twice as long; if it succeeds, all goes on. The pauses of one trouble have a
// bound, RetryBudget. Beyond it events fail as they would have, each on its
// own, up to the bounds of parking: a consumer must not stand still for ever
// because of what one code says.
//
// Safe for concurrent use: the stream's groups and the retries share it.
type circuit struct {
	after          int // failures with one cause, more than successes meanwhile, that open it
	first, longest time.Duration
	budget         time.Duration

	mu              sync.Mutex
	code            string // the cause of the present trouble
	failed, applied int    // events, since it began
	tripped         bool   // nothing has succeeded since it opened
	until           time.Time
	pause, spent    time.Duration
}

func newCircuit(cfg ConsumerConfig) *circuit {
	return &circuit{after: cfg.CircuitAfter, first: cfg.CircuitPause, longest: max(cfg.CircuitPause, cfg.RetryDelayMax), budget: cfg.RetryBudget}
}

// left is how long the present pause still takes; 0 if the circuit is not open.
func (c *circuit) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, time.Until(c.until))
}

// succeeded notes that n events had their effect.
func (c *circuit) succeeded(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied += n
	if n > 0 && (c.tripped || c.applied >= c.failed) {
		c.code, c.failed, c.applied, c.tripped, c.until, c.pause, c.spent = "", 0, 0, false, time.Time{}, 0, 0
	}
}

// failing notes that an event failed alone. It returns for how long the
// consumer stands still now, or 0 if the event is to be recorded. retried says
// that it had failed before: what fails again says nothing new about the
// others, but it may be the one that is tried after a pause.
func (c *circuit) failing(err error, retried bool) (pause time.Duration) {
	if !suspicious(err) {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	code := codeOf(err)
	switch {
	case retried && (!c.tripped || code != c.code):
		return 0
	case code != c.code:
		c.code, c.failed, c.applied, c.tripped, c.pause, c.spent = code, 0, 0, false, 0, 0
	}
	if c.failed++; !c.tripped && c.failed <= c.after || c.spent >= c.budget {
		return 0
	}
	c.tripped = true
	c.pause = min(max(c.first, 2*c.pause), c.longest, c.budget-c.spent)
	c.spent += c.pause
	c.until = time.Now().Add(c.pause)
	return c.pause
}

// suspicious reports whether an error may be the consumer's fault rather than
// its event's. What the handler has said about the event itself, it knows.
func suspicious(err error) bool {
	var delayed *retryAfterError
	return !IsPermanent(err) && !errors.As(err, &delayed) && (judge(err) != permanent || strings.HasPrefix(postgres.Code(err), "23"))
}

// standStill hands events back to the broker until the pause is over, and
// reports whether there is one.
func (c *Consumer) standStill(items []*item) bool {
	left := c.circuit.left()
	if left == 0 {
		return false
	}
	for _, it := range items {
		c.comeAgain(it, left)
	}
	return true
}

// opened tells of a pause.
func (c *Consumer) opened(ctx context.Context, pause time.Duration, err error) {
	c.meters.stoodStill(ctx, codeOf(err))
	c.cfg.Logger.Error("most events fail with one cause: nothing is read for a while, and nothing is counted against any event",
		"code", codeOf(err), "error", detailOf(err), "pause", pause)
}

// effects is how many events had their handler called, and waited for nothing.
func effects(items []*item) (n int) {
	for _, it := range items {
		if !it.skipped && !it.waiting {
			n++
		}
	}
	return n
}
