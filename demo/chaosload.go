package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The load under chaos: enough that something is always under way everywhere.
const (
	chaosRate    = 120 // orders begun in a second; what a fault has held up is made up for
	chaosDemand  = 100 // orders answered in a second, below which a run proves less than it should
	chaosWorkers = 256 // each waits while a part is down, and then they go on at once
)

// loadUnderChaos places orders for as long as the chaos lasts, and says how
// many there were in a second, over all and in the time of each misfortune.
func (r *run) loadUnderChaos(ctx context.Context, cfg LoadConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over, paces := make(chan struct{}), new(paces)
	cfg.Enough = over
	cfg.Progress = func(done int) { // no bar: how many there will be, nobody knows
		paces.done.Store(int64(done))
		r.screen.show(fmt.Sprintf("%d orders", done))
	}
	ended := make(chan error, 1)
	go func() {
		defer close(over)
		err := r.stack.chaos(ctx, r.Chaos, func(m misfortune) {
			paces.turn(m.name, time.Now())
			r.screen.printf("  ! %s", m.name)
			if m.mails {
				r.copies += mailsOnTheirWay
			}
		})
		paces.turn("", time.Now())
		ended <- err
	}()
	err := Load(ctx, cfg)
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-ended)
	r.screen.keep()
	r.screen.printf("\n%s", paces)
	return err
}

// mailsOnTheirWay is how many mails notify sends at the same time.
const mailsOnTheirWay = 8

// allowCopies takes up to n second copies of mails for what they are: a mail
// that its server has accepted before somebody could write that down is sent
// once more, under the same Message-ID. SMTP leaves no other choice than that
// or none at all; docs/02-guarantees.md says so.
func (r *Report) allowCopies(n int64) {
	r.OK = true
	for i := range r.Results {
		result := &r.Results[i]
		if result.Check == checkCopies && result.Found > 0 && result.Found <= n {
			result.OK = true
			r.Notes = append(r.Notes, fmt.Sprintf("%d mails came twice, under one Message-ID: they were on their way when their sender or its database failed; up to %d may", result.Found, n))
		}
		r.OK = r.OK && result.OK
	}
}

// paces measures how fast orders are answered while one thing after the other
// goes wrong.
type paces struct {
	done atomic.Int64 // orders so far

	mu    sync.Mutex
	turns []paceTurn
}

// A paceTurn is the time of one misfortune, until the next one.
type paceTurn struct {
	what   string
	began  time.Time
	before int64 // orders that were done when it began
}

// turn begins the time of the next misfortune; without a name, it ends the
// last one's.
func (p *paces) turn(what string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns = append(p.turns, paceTurn{what, at, p.done.Load()})
}

// String is a table: how many orders a second there were in the time of each
// misfortune, in the best of them, and over all.
func (p *paces) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.turns) < 2 {
		return ""
	}
	rows, rates := [][]string{{"what went wrong", "orders a second meanwhile"}}, []float64{}
	for i, turn := range p.turns[:len(p.turns)-1] {
		rate := between(turn, p.turns[i+1])
		rates = append(rates, rate)
		rows = append(rows, []string{turn.what, fmt.Sprintf("%.0f", rate)})
	}
	first, last := p.turns[0], p.turns[len(p.turns)-1]
	overall := between(first, last)
	slices.Sort(rates)
	rows = append(rows,
		[]string{"half of the time at least", fmt.Sprintf("%.0f", rates[len(rates)/2])},
		[]string{strconv.Itoa(len(rates)) + " misfortunes, " + last.began.Sub(first.began).Round(time.Second).String() + " in all", fmt.Sprintf("%.0f", overall)})
	text := table(rows)
	if overall < chaosDemand {
		text += fmt.Sprintf("  fewer than %d in a second: this machine has not enough to spare, and the run proves less than it could\n", chaosDemand)
	}
	return text
}

// between returns the orders a second from one moment to another.
func between(a, b paceTurn) float64 {
	return float64(b.before-a.before) / max(b.began.Sub(a.began).Seconds(), 0.001)
}
