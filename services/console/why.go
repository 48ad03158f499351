package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"orderpaid/operator"
	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// A whyPage is everything that is known about a key, as one line through time.
type whyPage struct {
	Key      string
	Keys     []string // the orders that the key leads to
	Silent   []string // services that did not answer: what they know is missing
	Verdict  string   // one sentence that a customer could read
	Mood     string   // done, pending, late, unknown or failed
	Timeline []moment
	Waiting  []waiting
	Failures []whyFailure
	Took     time.Duration
}

type whyFailure struct {
	Service string
	messaging.DeadLetter
}

// A waiting consumer has not taken an event yet.
type waiting struct{ Kind, Service, Consumer, State string }

// A moment is one thing that happened, and who says so.
type moment struct {
	At      time.Time
	Service string
	What    string // a key of the texts: staged, published, applied, failed, effect, action
	Subject string // an event's kind, a consumer, an effect
	State   string
	Detail  string // ids and positions
	Says    string // what a person or a service wrote
}

// getWhy shows the trail of one order, payment, event or customer.
func (s *Service) getWhy(w http.ResponseWriter, r *http.Request) {
	p := whyPage{Key: strings.TrimSpace(r.URL.Query().Get("key"))}
	if p.Key == "" {
		var err error
		if p.Keys, err = readRecent(r.Context(), s.pool, 8); err != nil {
			p.Silent = []string{"console"}
		}
		s.render(w, r, http.StatusOK, "why", view{Nav: "why", Data: p})
		return
	}
	p, err := s.readWhy(r, p.Key)
	if err != nil {
		s.render(w, r, http.StatusForbidden, "why", view{Nav: "why", Notice: s.opsSaid(r, err), Data: p})
		return
	}
	s.render(w, r, http.StatusOK, "why", view{Nav: "why", Refresh: 10, Data: p})
}

// readWhy asks every service at once; see [operator.Fleet.Why].
func (s *Service) readWhy(r *http.Request, key string) (whyPage, error) {
	started := time.Now()
	p := whyPage{Key: key}
	fleet, err := s.fleet(r)
	if err != nil {
		return p, err
	}
	e, err := fleet.Why(r.Context(), key)
	if err != nil {
		return p, err
	}
	for _, silence := range e.Silent {
		p.Silent = append(p.Silent, silence.Service)
	}
	for _, trail := range e.Trails {
		p.Keys = append(p.Keys, trail.Order)
	}
	if len(e.Trails) > 0 {
		p.follow(e.Trails[0], languageOf(r))
	}
	slices.SortStableFunc(p.Timeline, func(a, b moment) int { return a.At.Compare(b.At) })
	p.Took = time.Since(started)
	return p, nil
}

// fleet is all ops APIs, for the visitor if he has signed in, else with the
// console's own token, which may only look.
func (s *Service) fleet(r *http.Request) (*operator.Fleet, error) {
	_, token := actorOf(r)
	if token == "" {
		token = s.flags.OpsPeerToken
	}
	return operator.NewFleet(s.flags.OpsPeers, token, upstreamTimeout)
}

// follow puts one order's trail into the page.
func (p *whyPage) follow(t operator.Trail, language string) {
	p.Mood, p.Verdict = t.Verdict.Code, t.Verdict.EN
	if language == "zh" {
		p.Verdict = t.Verdict.ZH
	}
	for _, silence := range t.Silent {
		if !slices.Contains(p.Silent, silence.Service) {
			p.Silent = append(p.Silent, silence.Service)
		}
	}
	for _, e := range t.Evidence {
		p.add(e.Service, e)
	}
	for _, event := range t.Events {
		if event.State == "unknown" {
			continue // its owner is silent: nobody knows more than its consumers, who are in the line
		}
		for _, c := range event.Consumers {
			if c.State == operator.AtWaiting {
				p.Waiting = append(p.Waiting, waiting{event.Kind, c.Service, c.Consumer, event.State})
			}
		}
	}
}

// add puts what one service knows into the line.
func (p *whyPage) add(service string, e opsapi.Evidence) {
	for _, f := range e.Effects {
		if f.What == "order" {
			continue // what the order is now; its steps tell how it came to that
		}
		p.Timeline = append(p.Timeline, moment{f.At, service, "effect", f.What, f.State, f.ID, says(f.Says)})
	}
	for _, ev := range e.Staged {
		p.Timeline = append(p.Timeline, moment{ev.CreatedAt, service, "staged", ev.Kind, ev.State, ev.EventID.String(), deref(ev.LastError)})
		if ev.PublishedAt != nil {
			p.Timeline = append(p.Timeline, moment{*ev.PublishedAt, service, "published", ev.Kind, "published", place(ev), ""})
		}
	}
	for _, seen := range e.Seen {
		p.Timeline = append(p.Timeline, moment{seen.ProcessedAt, service, "applied", seen.Consumer, seen.Result, seen.EventID.String(), ""})
	}
	for _, f := range e.Failures {
		p.Failures = append(p.Failures, whyFailure{service, f})
		p.Timeline = append(p.Timeline, moment{f.FirstFailedAt, service, "failed", f.Consumer, f.State, f.ErrorCode, f.ErrorDetail})
	}
	for _, a := range e.Actions {
		p.Timeline = append(p.Timeline, moment{a.At, service, "action", a.Actor, a.Action, a.Target, a.Reason})
	}
}

func place(ev messaging.StagedEvent) string {
	if ev.Stream == nil || ev.StreamSeq == nil {
		return ""
	}
	return fmt.Sprintf("%s %d · %s", *ev.Stream, *ev.StreamSeq, deref(ev.PublishedBy))
}

func says(details map[string]string) string {
	var parts []string
	for name, value := range details {
		parts = append(parts, name+" "+value)
	}
	slices.Sort(parts)
	return strings.Join(parts, " · ")
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
