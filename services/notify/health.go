package notify

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// health knows whether there is a mail server that works. While there is none,
// sending pauses: to try every mail against a server that is down would spend
// their budgets on something that is not their fault, and to send to one that
// swallows mails without an answer would make all of them unknown.
type health struct {
	logger *slog.Logger

	mu       sync.Mutex
	failures int       // in a row; 0: it works
	until    time.Time // no mail before
}

const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// note takes in how an attempt ended.
func (h *health) note(r Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r.Outcome {
	case Unavailable, Unanswered:
		if time.Now().Before(h.until) {
			return // mails that were on their way together tell the same story once
		}
		pause := lastPause
		if h.failures < 6 {
			pause = firstPause << h.failures
		}
		h.failures++
		pause = pause/2 + rand.N(pause/2) // so that many senders do not return together
		h.until = time.Now().Add(pause)
		if h.failures == 1 {
			h.logger.Warn("sending pauses: the mail server does not answer as it should", "outcome", r.Outcome, "error", r.Err)
		}
	case Accepted, Deferred, Rejected:
		if h.failures > 0 {
			h.logger.Info("the mail server answers again", "failures", h.failures)
		}
		h.failures, h.until = 0, time.Time{}
	}
}

func (h *health) failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures > 0
}

// wait returns true when mails may be sent, and false when ctx is done.
func (h *health) wait(ctx context.Context) bool {
	h.mu.Lock()
	pause := time.Until(h.until)
	h.mu.Unlock()
	if pause <= 0 {
		return ctx.Err() == nil
	}
	return sleep(ctx, pause)
}
