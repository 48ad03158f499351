package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// A whyPage is everything that is known about a key, as one line through time.
type whyPage struct {
	Key       string
	Keys      []string // the orders that the key leads to
	Silent    []string // services that did not answer: what they know is missing
	Timeline  []moment
	Events    []messaging.StagedEvent
	Failures  []whyFailure
	Consumers []opsapi.ConsumerInfo
	Effects   []opsapi.Effect
	Heard     []TrailEntry
	Verdict   string // one sentence that a customer could read
	Mood      string // good, waiting, failed or lost
	Took      time.Duration
}

// Found reports whether anybody knows the key.
func (p whyPage) Found() bool { return len(p.Timeline) > 0 }

type whyFailure struct {
	Service string
	messaging.DeadLetter
}

// A moment is one thing that happened, and who says so.
type moment struct {
	At      time.Time
	Service string
	What    string // a key of the texts: staged, published, applied, failed, effect, action, heard
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
	p = s.readWhy(r.Context(), p.Key)
	s.render(w, r, http.StatusOK, "why", view{Nav: "why", Refresh: 10, Data: p})
}

// readWhy asks every service at once. A key that is no order's own leads to
// one: the order's evidence is then what is shown.
func (s *Service) readWhy(ctx context.Context, key string) whyPage {
	started := time.Now()
	p := whyPage{Key: key}
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	all := s.askAll(ctx, key)
	if !orderIDPattern.MatchString(key) {
		if p.Keys = leadsTo(all); len(p.Keys) == 1 {
			all = s.askAll(ctx, p.Keys[0])
		}
	}
	for _, a := range all {
		if a.err != nil {
			p.Silent = append(p.Silent, a.service)
			continue
		}
		p.add(a.service, a.evidence)
	}
	order := key
	if len(p.Keys) > 0 {
		order = p.Keys[0]
	}
	var err error
	if p.Heard, err = readTrail(ctx, s.pool, order); err == nil {
		for _, h := range p.Heard {
			p.Timeline = append(p.Timeline, moment{h.RecordedAt, "console", "heard", h.Kind, "", h.EventID.String(), ""})
		}
	}
	slices.SortStableFunc(p.Timeline, func(a, b moment) int { return a.At.Compare(b.At) })
	p.Took = time.Since(started)
	return p
}

type evidenceOf struct {
	service  string
	evidence opsapi.Evidence
	err      error
}

func (s *Service) askAll(ctx context.Context, key string) []evidenceOf {
	all := make([]evidenceOf, len(serviceNames))
	done := make(chan struct{}, len(all))
	for i, name := range serviceNames {
		go func() {
			all[i].service = name
			all[i].evidence, all[i].err = s.ops[name].Evidence(ctx, key)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	return all
}

// leadsTo returns the orders that the services name for a key.
func leadsTo(all []evidenceOf) (keys []string) {
	for _, a := range all {
		for _, key := range a.evidence.Keys {
			if orderIDPattern.MatchString(key) && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// add puts what one service knows into the line.
func (p *whyPage) add(service string, e opsapi.Evidence) {
	for _, f := range e.Effects {
		p.Effects = append(p.Effects, f)
		p.Timeline = append(p.Timeline, moment{f.At, service, "effect", f.What, f.State, f.ID, says(f.Says)})
	}
	for _, ev := range e.Staged {
		p.Events = append(p.Events, ev)
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
	p.Consumers = append(p.Consumers, e.Consumers...)
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
