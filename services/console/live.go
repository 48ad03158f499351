package console

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
)

// The pages that change while somebody looks. Each is complete when it
// arrives; a small script replaces the parts that a stream sends again, and a
// browser without scripts loads the page anew now and then.

// A livePage is a board with what the page needs beside it.
type livePage struct {
	*Board
	Lanes  []lane
	Breaks []string // what the buttons can break
	Faults []fault  // what is broken on purpose at the moment
	Recent []string
	Demo   bool
}

// A lane is one consumer's way from the stream to its effect.
type lane struct {
	Durable, Service, Effect string
	Flow                     Flow
	Retrying, Parked, Dead   int
	Oldest                   float64 // seconds since the oldest failure
	Ahead                    uint64  // sequences that the stream has still to give: their events will be skipped
	Active                   bool
	Silent                   bool
}

// A fault is something that the demo's supervisor has broken.
type fault struct {
	What  string    `json:"what"`
	Until time.Time `json:"until"`
}

// breakable are the buttons, in the order in which they are best tried.
var breakable = []string{"relay", "relays", "points", "mail", "postgres", "duplicates", "poison"}

var laneOrder = []lane{
	{Durable: "points-awarder", Service: "points", Effect: "points_entry"},
	{Durable: "notify-sender", Service: "notify", Effect: "mail"},
	{Durable: "search-indexer", Service: "search", Effect: "document"},
	{Durable: "order-followups", Service: "order", Effect: "follow_up"},
	{Durable: auditor, Service: "console", Effect: "trail"},
}

func (s *Service) livePage(ctx context.Context) livePage {
	p := livePage{Board: s.board.Load(), Lanes: slices.Clone(laneOrder), Demo: s.control.base != ""}
	for i := range p.Lanes {
		l := &p.Lanes[i]
		l.Flow = p.Flows[l.Durable]
		for _, c := range p.Stream.Consumers {
			if c.Durable == l.Durable {
				l.Ahead = c.Ahead
			}
		}
		for _, service := range p.Services {
			if service.Name != l.Service {
				continue
			}
			l.Silent = service.Silent
			for _, c := range service.Backlog.Consumers {
				if c.Consumer == l.Durable {
					l.Retrying, l.Parked, l.Dead = c.Retrying, c.Parked+c.Gaps, c.DeadLetters
					l.Oldest, l.Active = c.OldestFailureSeconds, c.Active != ""
				}
			}
		}
	}
	if p.Demo {
		p.Breaks = breakable
		var state struct {
			Faults []fault `json:"faults"`
		}
		if err := s.control.get(ctx, "/state", &state); err == nil {
			p.Faults = state.Faults
		}
	}
	return p
}

// Owner returns the order service's part of the board.
func (p livePage) Owner() ServiceState {
	for _, s := range p.Services {
		if s.Name == "order" {
			return s
		}
	}
	return ServiceState{Name: "order", Silent: true}
}

// Staged adds up what waits in all outboxes, and how old the oldest is.
func (p livePage) Staged() (total struct {
	Pending, Held, Failed int
	Oldest                float64
	Silent                bool
}) {
	for _, s := range p.Services {
		total.Pending += s.Backlog.Pending
		total.Held += s.Backlog.HeldWaiting
		total.Failed += s.Backlog.HeldFailed
		total.Oldest = max(total.Oldest, s.Backlog.OldestPendingSeconds)
		total.Silent = total.Silent || s.Silent
	}
	return total
}

func (s *Service) getLive(w http.ResponseWriter, r *http.Request) {
	p := s.livePage(r.Context())
	var err error
	if p.Recent, err = readRecent(r.Context(), s.pool, 5); err != nil {
		p.Recent = nil // the page says already that the console's database is away
	}
	s.render(w, r, http.StatusOK, "live", view{Nav: "live", Refresh: 5, Data: p})
}

func (s *Service) streamLive(w http.ResponseWriter, r *http.Request) {
	language := languageOf(r)
	s.stream(w, r, func(ctx context.Context) (map[string]string, bool, error) {
		p := s.livePage(ctx)
		parts := map[string]string{}
		for _, name := range []string{"board", "pipeline", "minutes", "faults"} {
			html, err := s.part(language, "live", name, p)
			if err != nil {
				return nil, false, err
			}
			parts[name] = html
		}
		return parts, false, nil
	})
}

// streamOrder follows an order until nothing of it is pending any more.
func (s *Service) streamOrder(w http.ResponseWriter, r *http.Request) {
	id, language := chi.URLParam(r, "id"), languageOf(r)
	if !orderIDPattern.MatchString(id) {
		s.notFound(w, r)
		return
	}
	s.stream(w, r, func(ctx context.Context) (map[string]string, bool, error) {
		o, _ := s.readOrder(ctx, id) // silence is a part of what is shown
		html, err := s.part(language, "order", "progress", o)
		return map[string]string{"progress": html}, !o.Open(), err
	})
}

const (
	streamBeat  = time.Second
	streamLife  = 10 * time.Minute // then the browser asks again by itself
	streamWrite = 5 * time.Second  // for a reader that takes nothing any more

	// streamRetry is when the first browsers come back after a stream has ended.
	// The last come four times later: after a restart all of them are waiting.
	streamRetry = time.Second

	// maxStreams is how many readers there may be at once. Each asks a service, or
	// has a page made, once a second.
	maxStreams = 500
)

// stream sends the parts of a page that have changed, once a second, until
// read says that this was the last time. The server's limits are for answers;
// a stream renews its own with each beat, and so ends as soon as its reader
// has gone, and when the process is asked to stop.
//
// HEAD gets the headers alone. What is written to it goes nowhere, so nothing
// would ever tell that its reader has gone.
func (s *Service) stream(w http.ResponseWriter, r *http.Request, read func(context.Context) (map[string]string, bool, error)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), streamLife) // the router's deadline is for answers, too
	defer cancel()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Content-Security-Policy", pageCSP)
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep each event until it has some kilobytes of them
	if r.Method == http.MethodHead {
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default: // the page is complete without, and asks again later
		http.Error(w, "too many look at once", http.StatusServiceUnavailable)
		return
	}
	retry := streamRetry + rand.N(3*streamRetry)
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	sent := map[string]string{}
	for {
		parts, last, err := read(ctx)
		if err != nil {
			slog.ErrorContext(ctx, "stream ends", "error", err)
			return
		}
		for name, html := range parts {
			if sent[name] == html {
				delete(parts, name)
			} else {
				sent[name] = html
			}
		}
		if out.SetWriteDeadline(time.Now().Add(streamWrite)) != nil || writeEvent(w, parts, last, retry) != nil || out.Flush() != nil || last {
			return
		}
		select {
		case <-s.done:
			return
		case <-ctx.Done():
			return
		case <-beat.C:
		}
	}
}

// writeEvent writes one server-sent event; without parts a comment, which tells
// whether the reader is still there. retry is when the browser shall ask again
// once the stream has ended.
func writeEvent(w http.ResponseWriter, parts map[string]string, last bool, retry time.Duration) error {
	if len(parts) == 0 && !last {
		_, err := fmt.Fprint(w, ":\n\n")
		return err
	}
	encoded, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	name := "parts"
	if last {
		name = "last"
	}
	_, err = fmt.Fprintf(w, "event: %s\nretry: %d\ndata: %s\n\n", name, retry.Milliseconds(), encoded)
	return err
}

// postBreak breaks, or heals, what the demo's supervisor can.
func (s *Service) postBreak(w http.ResponseWriter, r *http.Request) {
	what := chi.URLParam(r, "what")
	if what != "heal" && !slices.Contains(breakable, what) {
		s.notFound(w, r)
		return
	}
	notice := s.text(r, "break."+what+".done")
	if err := s.control.post(r.Context(), "/break"+path(what), struct{}{}, nil); err != nil {
		notice = s.said(r, err)
	}
	setNotice(w, r, notice)
	http.Redirect(w, r, "/live", http.StatusSeeOther)
}
