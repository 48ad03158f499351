package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

// orderPrefix begins every order's id: the key that the services share.
const orderPrefix = "ord_"

// maxOrders bounds the orders that are followed for one question: a customer's
// latest.
const maxOrders = 10

// An Explanation is everything that is known about a key.
type Explanation struct {
	Key    string    `json:"key"`
	Trails []Trail   `json:"trails"`           // one for each order that the key leads to
	Silent []Silence `json:"silent,omitempty"` // who did not answer; the rest is there all the same
}

// A Trail is what became of one order.
type Trail struct {
	Order    string            `json:"order"`
	Verdict  Verdict           `json:"verdict"`
	Events   []EventTrail      `json:"events"`
	Effects  []OwnedEffect     `json:"effects"` // what services did, their own rows
	Actions  []OwnedAction     `json:"actions"` // what people did
	Replays  []OwnedReplay     `json:"replays"`
	Evidence []opsapi.Evidence `json:"-"`
	Silent   []Silence         `json:"silent,omitempty"`
}

// OwnedEffect is an effect with the service whose it is.
type OwnedEffect struct {
	Service string `json:"service"`
	opsapi.Effect
}

// OwnedAction is an action with the service on which it was done.
type OwnedAction struct {
	Service string `json:"service"`
	messaging.Action
}

// OwnedReplay is a replayed event with the service to which it was replayed.
type OwnedReplay struct {
	Service string `json:"service"`
	opsapi.ReplayedEvent
}

// Why tells what became of a key: an order's id, a payment's, an event's, or a
// customer's. A service that does not answer is named, and what the others know
// is there.
func (f *Fleet) Why(ctx context.Context, key string) (Explanation, error) {
	e := Explanation{Key: key, Trails: []Trail{}}
	if len(key) > messaging.MaxIDBytes { // so long a request that services cut it off would look like their silence
		return e, fmt.Errorf("an id has at most %d bytes, and this one %d", messaging.MaxIDBytes, len(key))
	}
	away := map[string]error{}
	orders, first, err := f.resolve(ctx, away, key)
	if err != nil {
		return e, err
	}
	e.Silent = first.silent
	for _, order := range orders[:min(len(orders), maxOrders)] {
		found := first
		if order != key {
			if found, err = f.collect(ctx, away, order); err != nil {
				return e, err
			}
		}
		if err := f.follow(ctx, away, &found); err != nil {
			return e, err
		}
		trail := newTrail(order, found)
		if len(orders) > 1 || len(trail.Events)+len(trail.Effects) > 0 {
			e.Trails = append(e.Trails, trail)
		}
	}
	return e, nil
}

// collected is what the services said about one key.
type collected struct {
	evidence []opsapi.Evidence
	silent   []Silence
}

func (f *Fleet) collect(ctx context.Context, away map[string]error, key string) (collected, error) {
	answers := askSoon(ctx, f, away, func(ctx context.Context, c *opsapi.Client) (opsapi.Evidence, error) { return c.Evidence(ctx, key) })
	if err := refusal(answers); err != nil {
		return collected{}, err
	}
	var found collected
	for _, a := range answers {
		if a.err != nil {
			found.silent = append(found.silent, silence(a.client, a.err))
			continue
		}
		found.evidence = append(found.evidence, a.value)
	}
	return found, nil
}

// resolve finds the orders that a key leads to. Where a service only knows an
// aggregate of another one (the order service has the event of a ledger entry
// in its inbox), that one is asked for it.
func (f *Fleet) resolve(ctx context.Context, away map[string]error, key string) (orders []string, first collected, err error) {
	if first, err = f.collect(ctx, away, key); err != nil {
		return nil, first, err
	}
	if strings.HasPrefix(key, orderPrefix) {
		return []string{key}, first, nil
	}
	found, asked := first, []string{key}
	for range 2 {
		var others []string
		for _, e := range found.evidence {
			for _, k := range e.Keys {
				switch {
				case strings.HasPrefix(k, orderPrefix) && !slices.Contains(orders, k):
					orders = append(orders, k)
				case !strings.HasPrefix(k, orderPrefix) && !slices.Contains(asked, k):
					others = append(others, k)
				}
			}
		}
		if len(orders) > 0 || len(others) == 0 {
			break
		}
		asked = append(asked, others[0])
		if found, err = f.collect(ctx, away, others[0]); err != nil {
			return nil, first, err
		}
	}
	slices.SortFunc(orders, func(a, b string) int { return strings.Compare(b, a) }) // newest first: ids hold their time
	return orders, first, nil
}

// follow asks what consumers made of the events that were found: a consumer's
// own evidence only knows those that are about the order itself, and not, say,
// that of the ledger entry.
func (f *Fleet) follow(ctx context.Context, away map[string]error, found *collected) error {
	var ids []uuid.UUID
	for _, e := range found.evidence {
		for _, s := range e.Staged {
			ids = append(ids, s.EventID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ids = ids[:min(len(ids), 1000)]
	answers := askSoon(ctx, f, away, func(ctx context.Context, c *opsapi.Client) (opsapi.InboxFound, error) { return c.InboxLookup(ctx, ids) })
	for _, a := range answers {
		if a.err != nil {
			if !slices.ContainsFunc(found.silent, func(s Silence) bool { return s.Service == a.client.Service() }) {
				found.silent = append(found.silent, silence(a.client, a.err))
			}
			continue
		}
		for i := range found.evidence {
			if found.evidence[i].Service == a.client.Service() {
				addFound(&found.evidence[i], a.value)
			}
		}
	}
	return nil
}

// addFound adds what the evidence does not hold yet.
func addFound(e *opsapi.Evidence, more opsapi.InboxFound) {
	for _, s := range more.Seen {
		known := func(k messaging.SeenEvent) bool { return k.Consumer == s.Consumer && k.EventID == s.EventID }
		if !slices.ContainsFunc(e.Seen, known) {
			e.Seen = append(e.Seen, s)
		}
	}
	for _, failure := range more.Failures {
		known := func(k messaging.DeadLetter) bool { return k.FailureID == failure.FailureID }
		if !slices.ContainsFunc(e.Failures, known) {
			e.Failures = append(e.Failures, failure)
		}
	}
}
