package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// A Fleet is the ops APIs of all services.
type Fleet struct {
	clients  []*opsapi.Client // by name
	deadline time.Duration
}

// DefaultDeadline is how long one service may take to answer one question
// before it counts as silent. The others' answers are shown all the same.
const DefaultDeadline = 3 * time.Second

// NewFleet returns the fleet of the services at the given addresses of their
// ops listeners, such as points=http://127.0.0.1:9081. deadline defaults to
// [DefaultDeadline].
func NewFleet(services map[string]string, token process.Secret, deadline time.Duration) (*Fleet, error) {
	if len(services) == 0 {
		return nil, errors.New("no service is known: give the addresses of their ops listeners")
	}
	if deadline == 0 {
		deadline = DefaultDeadline
	}
	f := &Fleet{deadline: deadline}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		c, err := opsapi.NewClient(name, services[name], token)
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", name, err)
		}
		f.clients = append(f.clients, c)
	}
	return f, nil
}

// Service returns the ops API of one service.
func (f *Fleet) Service(name string) (*opsapi.Client, error) {
	for _, c := range f.clients {
		if c.Service() == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("there is no service %q; known are %v", name, f.Names())
}

// Names returns the services' names in order.
func (f *Fleet) Names() []string {
	names := make([]string, len(f.clients))
	for i, c := range f.clients {
		names[i] = c.Service()
	}
	return names
}

// A Silence is a service that did not answer, or refused to, and why.
type Silence struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
}

// An answer is what one service said.
type answer[T any] struct {
	client *opsapi.Client
	value  T
	err    error
}

// ask puts the same question to every service at once and returns the answers
// in the order of their names.
func ask[T any](ctx context.Context, f *Fleet, question func(context.Context, *opsapi.Client) (T, error)) []answer[T] {
	answers := make([]answer[T], len(f.clients))
	var asked sync.WaitGroup
	for i, c := range f.clients {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, f.deadline)
			defer cancel()
			value, err := question(ctx, c)
			answers[i] = answer[T]{c, value, err}
		})
	}
	asked.Wait()
	return answers
}

// patience is the least that a service gets after most others have answered,
// and patienceTimes how much longer than them it may take: on a busy machine
// all are slow, and one that is frozen is slower than any.
const (
	patience      = 100 * time.Millisecond
	patienceTimes = 4
)

// askSoon is ask for a person who waits for the answer: it does not wait for
// the deadline once it is plain that a service is far behind the others. Who
// was, is put down in away, and is not asked again by those who pass it on.
func askSoon[T any](ctx context.Context, f *Fleet, away map[string]error, question func(context.Context, *opsapi.Client) (T, error)) []answer[T] {
	ctx, cancel := context.WithTimeout(ctx, f.deadline)
	var asking sync.WaitGroup
	defer func() { cancel(); asking.Wait() }() // who is late is cut off
	type reply struct {
		i int
		answer[T]
	}
	replies := make(chan reply, len(f.clients)) // all of them: nobody may read the late ones
	answers := make([]answer[T], len(f.clients))
	open := 0
	for i, c := range f.clients {
		if answers[i] = (answer[T]{client: c, err: away[c.Service()]}); answers[i].err != nil {
			continue
		}
		answers[i].err = context.DeadlineExceeded // until it answers
		open++
		asking.Go(func() {
			value, err := question(ctx, c)
			replies <- reply{i, answer[T]{c, value, err}}
		})
	}
	began, asked := time.Now(), open
	var enough <-chan time.Time
	for open > 0 {
		select {
		case r := <-replies:
			answers[r.i] = r.answer
			open--
		case <-enough:
			open = 0
		case <-ctx.Done():
			open = 0
		}
		if enough == nil && 2*open < asked {
			enough = time.After(max(patience, patienceTimes*time.Since(began)))
		}
	}
	for _, a := range answers {
		if a.err != nil {
			away[a.client.Service()] = a.err
		}
	}
	return answers
}

// silence says why there is no answer, in a form that can be shown.
func silence(a *opsapi.Client, err error) Silence {
	var refused *httpserver.Error
	switch {
	case errors.As(err, &refused):
		return Silence{a.Service(), refused.Detail}
	case errors.Is(err, context.DeadlineExceeded):
		return Silence{a.Service(), "does not answer in time at " + a.Host()}
	default:
		return Silence{a.Service(), "does not answer at " + a.Host()}
	}
}

// refusal returns the first error by which services refuse rather than fail to
// answer: a wrong token concerns whoever asks, and hiding it as silence would
// send him looking for a broken service.
func refusal[T any](answers []answer[T]) error {
	var refused *httpserver.Error
	for _, a := range answers {
		if errors.As(a.err, &refused) && refused.Status/100 == 4 {
			return a.err
		}
	}
	return nil
}
