package operator

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// An EventTrail is one event with what each of its consumers made of it.
type EventTrail struct {
	Service string `json:"service"` // that staged it; empty if that one did not answer, or a person made the event
	messaging.StagedEvent
	Consumers []ConsumerTrail `json:"consumers"`
}

// The states of an event at a consumer.
const (
	AtApplied    = "applied"     // it has had its effect; Result says which
	AtWaiting    = "waiting"     // published, and not taken yet
	AtRetrying   = "retrying"    // it failed and will be tried again
	AtParked     = "parked"      // it waits behind another event, or for a missing one
	AtDeadLetter = "dead letter" // a person must act
	AtDiscarded  = "discarded"   // a person decided that it will not be applied
)

// A ConsumerTrail is how far one event is at one consumer.
type ConsumerTrail struct {
	Service       string     `json:"service"`
	Consumer      string     `json:"consumer"`
	State         string     `json:"state"`
	Result        string     `json:"result,omitempty"`
	At            *time.Time `json:"at,omitempty"` // applied, or failed last
	Attempts      int        `json:"attempts,omitempty"`
	ErrorCode     string     `json:"error_code,omitempty"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	Behind        string     `json:"behind,omitempty"` // the failure that it waits behind
	DeadLetter    string     `json:"dead_letter,omitempty"`
	DueAt         *time.Time `json:"due_at,omitempty"`
	Owner         string     `json:"owner,omitempty"`
	Runbook       string     `json:"runbook,omitempty"`
}

// newTrail joins what all services know about an order.
func newTrail(order string, found collected) Trail {
	t := Trail{Order: order, Silent: found.silent, Evidence: found.evidence, Events: []EventTrail{}, Effects: []OwnedEffect{},
		Actions: []OwnedAction{}, Replays: []OwnedReplay{}}
	for _, e := range found.evidence {
		for _, s := range e.Staged {
			t.Events = append(t.Events, EventTrail{Service: e.Service, StagedEvent: s})
		}
		for _, effect := range e.Effects {
			t.Effects = append(t.Effects, OwnedEffect{e.Service, effect})
		}
		for _, a := range e.Actions {
			t.Actions = append(t.Actions, OwnedAction{e.Service, a})
		}
		for _, r := range e.Replays {
			t.Replays = append(t.Replays, OwnedReplay{e.Service, r})
		}
	}
	t.addUnstaged()
	slices.SortStableFunc(t.Events, func(a, b EventTrail) int { return a.CreatedAt.Compare(b.CreatedAt) })
	slices.SortStableFunc(t.Actions, func(a, b OwnedAction) int { return a.At.Compare(b.At) })
	for i := range t.Events {
		for _, e := range found.evidence {
			t.Events[i].Consumers = append(t.Events[i].Consumers, consumersOf(e, t.Events[i])...)
		}
	}
	t.Verdict = judge(t)
	return t
}

// addUnstaged adds the events that consumers know and no outbox that answered:
// their owner is silent, or they are corrections.
func (t *Trail) addUnstaged() {
	known := map[uuid.UUID]bool{}
	for _, e := range t.Events {
		known[e.EventID] = true
	}
	add := func(id uuid.UUID, kind, aggregate string, version int64, at time.Time) {
		if known[id] {
			return
		}
		known[id] = true
		t.Events = append(t.Events, EventTrail{StagedEvent: messaging.StagedEvent{EventID: id, Kind: kind, AggregateID: aggregate,
			AggregateVersion: version, CreatedAt: at, State: "unknown"}})
	}
	for _, e := range t.Evidence {
		for _, f := range e.Failures {
			if f.EventID != nil {
				add(*f.EventID, kindName(f), f.AggregateID, f.AggregateVersion, f.FirstFailedAt)
			}
		}
		for _, s := range e.Seen {
			add(s.EventID, "", s.AggregateID, 0, s.ProcessedAt)
		}
	}
}

func kindName(f messaging.DeadLetter) string {
	if f.EventType == "" {
		return ""
	}
	return messaging.Kind{Type: f.EventType, Version: f.SchemaVersion}.String()
}

// consumersOf tells how far an event is at each consumer of a service that
// reads its kind, or has heard of it.
func consumersOf(e opsapi.Evidence, ev EventTrail) (trails []ConsumerTrail) {
	for _, c := range e.Consumers {
		trail := ConsumerTrail{Service: e.Service, Consumer: c.Name, State: AtWaiting}
		seen, failure := lookup(e, c.Name, ev.EventID)
		switch {
		case failure != nil && unresolved(failure.State):
			trail.fail(e, *failure)
		case seen != nil && (seen.Result == "discarded" || seen.Result == "corrected"):
			trail.State, trail.Result, trail.At = AtDiscarded, seen.Result, &seen.ProcessedAt
		case seen != nil:
			trail.State, trail.Result, trail.At = AtApplied, seen.Result, &seen.ProcessedAt
		case failure != nil:
			trail.fail(e, *failure)
		case !slices.Contains(c.Kinds, ev.Kind):
			continue
		}
		trails = append(trails, trail)
	}
	return trails
}

func unresolved(state string) bool {
	return state == "retrying" || state == "parked" || state == "open"
}

// lookup returns the inbox row and the latest failure of an event.
func lookup(e opsapi.Evidence, consumer string, id uuid.UUID) (seen *messaging.SeenEvent, failure *messaging.DeadLetter) {
	for i, s := range e.Seen {
		if s.Consumer == consumer && s.EventID == id {
			seen = &e.Seen[i]
		}
	}
	for i, f := range e.Failures {
		if f.Consumer == consumer && f.EventID != nil && *f.EventID == id {
			failure = &e.Failures[i]
		}
	}
	return seen, failure
}

func (c *ConsumerTrail) fail(e opsapi.Evidence, f messaging.DeadLetter) {
	c.State = map[string]string{"retrying": AtRetrying, "parked": AtParked, "open": AtDeadLetter, "discarded": AtDiscarded, "resolved": AtApplied}[f.State]
	c.Attempts, c.ErrorCode, c.At, c.NextAttemptAt, c.DueAt = f.Attempts, f.ErrorCode, &f.LastFailedAt, f.NextAttemptAt, f.DueAt
	c.DeadLetter, c.Owner, c.Runbook = e.Service+"/"+formatID(f.FailureID), f.Owner, f.Runbook
	if f.Resolution != nil {
		c.Result = *f.Resolution
	}
	if f.State == "parked" {
		c.Behind = behind(e, f)
	}
}

// behind names what a parked event waits for.
func behind(e opsapi.Evidence, parked messaging.DeadLetter) string {
	if parked.ErrorCode == "version_gap" {
		return "a version that has not come"
	}
	for _, f := range e.Failures {
		if f.Consumer == parked.Consumer && f.AggregateID == parked.AggregateID && f.AggregateVersion < parked.AggregateVersion && unresolved(f.State) {
			return e.Service + "/" + formatID(f.FailureID)
		}
	}
	return "an earlier event of " + parked.AggregateID
}

// event returns the latest event of a kind.
func (t Trail) event(kind string) (EventTrail, bool) {
	for _, e := range slices.Backward(t.Events) {
		if name, _, _ := strings.Cut(e.Kind, ".v"); name == kind {
			return e, true
		}
	}
	return EventTrail{}, false
}

// effect returns the latest effect of a kind that a service tells of.
func (t Trail) effect(service, what string, is func(opsapi.Effect) bool) (opsapi.Effect, bool) {
	for _, e := range slices.Backward(t.Effects) {
		if e.Service == service && e.What == what && (is == nil || is(e.Effect)) {
			return e.Effect, true
		}
	}
	return opsapi.Effect{}, false
}

func (t Trail) silent(service string) bool {
	return slices.ContainsFunc(t.Silent, func(s Silence) bool { return s.Service == service })
}
