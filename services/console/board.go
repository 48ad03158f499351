package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
)

// A Board is the state of everything at one moment, as far as it could be
// read. What does not answer is marked and not guessed.
type Board struct {
	At       time.Time
	Tally    Tally
	Minutes  []Minute
	Trouble  string // the console's own database could not be read
	Services []ServiceState
	Stream   natsbroker.Status
	NoStream bool // the broker does not answer
	Relays   int
	Audit    Audit
	Flows    map[string]Flow // by durable
	InRate   float64         // events stored on the stream, per second

	samples []sample // of the last rateWindow, oldest first
}

// ServiceState is one service with what it has unfinished.
type ServiceState struct {
	Name    string
	Silent  bool
	Refused bool // it answers, and does not let this console read
	Backlog opsapi.Backlog
}

// Worst adds up what one service has that a person should look at.
func (s ServiceState) Worst() (parked, dead int) {
	for _, c := range s.Backlog.Consumers {
		parked, dead = parked+c.Parked+c.Retrying+c.Gaps, dead+c.DeadLetters
	}
	return parked, dead
}

// A Flow is one consumer's part of the stream.
type Flow struct {
	Waiting  int64 // not delivered, or not acknowledged
	Rate     float64
	Forecast Forecast
}

// An Audit says what became of the oldest orders that are overdue: Lost are
// those whose effect is missing although nobody has the event any more.
type Audit struct {
	Checked   int
	Lost      int
	Unknown   int            // a service that would know does not answer
	Explained map[string]int // by where the event is
	LostIDs   []string
}

type sample struct {
	at      time.Time
	lastSeq uint64
	handled map[string]uint64
	waiting map[string]int64
}

// rateWindow is what rates are averaged over: shorter, and they flicker.
const rateWindow = 10 * time.Second

// readBoard asks everybody at once. The audit asks most, so it is made only
// now and then; between two it is carried on.
func (s *Service) readBoard(ctx context.Context, last *Board, audit bool) *Board {
	b := &Board{At: time.Now(), Audit: last.Audit, Minutes: last.Minutes, Services: make([]ServiceState, len(serviceNames))}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i, name := range serviceNames {
		wg.Go(func() { b.Services[i] = s.serviceState(ctx, name) })
	}
	wg.Go(func() {
		var err error
		if b.Stream, err = s.broker.Status(ctx); err != nil {
			b.NoStream, b.Stream = true, last.Stream
		}
	})
	wg.Go(func() {
		var err error
		if b.Tally, err = readTally(ctx, s.pool); err == nil {
			b.Minutes, err = readMinutes(ctx, s.pool)
		}
		if err != nil {
			b.Trouble, b.Tally = errSilent.Error(), last.Tally
		}
	})
	wg.Wait()
	for _, state := range b.Services {
		b.Relays = max(b.Relays, state.Backlog.Relays)
	}
	b.measure(last)
	if audit {
		b.Audit = s.audit(ctx, b)
	}
	return b
}

func (s *Service) serviceState(ctx context.Context, name string) ServiceState {
	state := ServiceState{Name: name}
	var err error
	state.Backlog, err = s.ops[name].Backlog(ctx)
	var no *httpserver.Error
	state.Refused = errors.As(err, &no) && no.Status/100 == 4
	state.Silent = err != nil && !state.Refused
	return state
}

// measure turns counters into rates and backlogs into forecasts.
func (b *Board) measure(last *Board) {
	now := sample{at: b.At, lastSeq: b.Stream.LastSeq, handled: map[string]uint64{}, waiting: map[string]int64{}}
	for _, c := range b.Stream.Consumers {
		now.handled[c.Durable], now.waiting[c.Durable] = c.Handled, int64(c.Pending)+int64(c.InFlight)
	}
	b.samples = append(slices.Clone(last.samples), now)
	for len(b.samples) > 2 && b.At.Sub(b.samples[1].at) > rateWindow {
		b.samples = b.samples[1:]
	}
	first := b.samples[0]
	span := now.at.Sub(first.at)
	b.Flows = map[string]Flow{}
	for name, waiting := range now.waiting {
		f := Flow{Waiting: waiting, Forecast: forecast(first.waiting[name], waiting, span)}
		f.Rate = perSecond(first.handled[name], now.handled[name], span)
		b.Flows[name] = f
	}
	b.InRate = perSecond(first.lastSeq, now.lastSeq, span)
}

func perSecond(before, now uint64, span time.Duration) float64 {
	if span <= 0 || now < before {
		return 0
	}
	return float64(now-before) / span.Seconds()
}

// Limits of an audit: orders are overdue after auditAge, and the oldest ones
// are looked at, each with a question to every service.
const (
	auditAge   = 20 * time.Second
	auditLimit = 8
)

// audit looks for orders that lack an effect without anybody who has an
// explanation: neither the outbox, nor the broker, nor a consumer.
func (s *Service) audit(ctx context.Context, b *Board) Audit {
	a := Audit{Explained: map[string]int{}}
	overdue, err := readOverdue(ctx, s.pool, auditAge, auditLimit)
	if err != nil {
		a.Unknown++
		return a
	}
	for _, o := range overdue {
		a.Checked++
		where := s.locate(ctx, b, o)
		switch where {
		case "lost":
			a.Lost, a.LostIDs = a.Lost+1, append(a.LostIDs, o.OrderID)
		case "unknown":
			a.Unknown++
		default:
			a.Explained[where]++
		}
	}
	return a
}

// locate finds the event that an overdue order waits for: outbox, broker,
// points, notify, search, console or person, or else lost or unknown.
func (s *Service) locate(ctx context.Context, b *Board, o Overdue) string {
	owner, err := s.ops["order"].Evidence(ctx, o.OrderID)
	if err != nil || b.NoStream {
		return "unknown"
	}
	paid, state, seq := stagedOf(owner, "OrderPaid.v1")
	switch {
	case paid == uuid.Nil:
		return "lost" // it was heard of, and its owner has never said it
	case state != "published":
		return "outbox"
	}
	for _, part := range []struct {
		missing                   bool
		service, durable, effects string
	}{
		{o.Uncredited, "points", "points-awarder", "PointsAwarded.v1"},
		{o.Unmailed, "notify", "notify-sender", "NotificationSent.v1"},
		{o.Unindexed, "search", "search-indexer", ""},
	} {
		if !part.missing {
			continue
		}
		if where := s.locateAt(ctx, b, part.service, part.durable, part.effects, o.OrderID, paid, seq); where != "" {
			return where
		}
	}
	return "console" // everything is there; its own trail is what is late
}

func (s *Service) locateAt(ctx context.Context, b *Board, service, durable, effect, orderID string, event uuid.UUID, seq int64) string {
	e, err := s.ops[service].Evidence(ctx, orderID)
	if err != nil {
		return "unknown"
	}
	for _, f := range e.Failures {
		if f.EventID != nil && *f.EventID == event && f.ResolvedAt == nil {
			return service
		}
	}
	seen, result := seenBy(e, durable, event)
	switch {
	case result == "discarded" || result == "corrected" || result == "expired":
		return "person" // who has decided that it shall have no effect
	case !seen && s.passed(b, durable, seq):
		return "lost"
	case !seen:
		return "broker"
	case len(e.Effects) == 0:
		return "lost" // applied, it says, and there is nothing
	case effect == "":
		return ""
	}
	stated, state, at := stagedOf(e, effect)
	switch {
	case stated == uuid.Nil || state != "published":
		return service // still at work, or its own outbox is behind
	case s.passed(b, auditor, at):
		return "lost"
	}
	return ""
}

// passed reports whether a durable has acknowledged everything up to seq.
func (s *Service) passed(b *Board, durable string, seq int64) bool {
	for _, c := range b.Stream.Consumers {
		if c.Durable == durable {
			return c.AckFloor >= uint64(max(seq, 0))
		}
	}
	return false
}

func seenBy(e opsapi.Evidence, consumer string, event uuid.UUID) (seen bool, result string) {
	for _, row := range e.Seen {
		if row.EventID == event && row.Consumer == consumer {
			return true, row.Result
		}
	}
	return false, ""
}

func stagedOf(e opsapi.Evidence, kind string) (id uuid.UUID, state string, seq int64) {
	for _, staged := range e.Staged {
		if staged.Kind == kind {
			if staged.StreamSeq != nil {
				seq = *staged.StreamSeq
			}
			return staged.EventID, staged.State, seq
		}
	}
	return uuid.Nil, "", 0
}
