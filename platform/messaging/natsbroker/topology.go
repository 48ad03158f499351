package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
)

// DefaultStream is the stream of all events.
const DefaultStream = "EVENTS"

// MaxMessageBytes is what the stream takes: an event of the largest size and
// its headers.
const MaxMessageBytes = messaging.MaxEventBytes + 16<<10

// A Topology is what must exist in JetStream: one stream and its durables.
type Topology struct {
	// Stream defaults to "EVENTS".
	Stream string

	// Replicas is the number of servers that store each event. Defaults to 1.
	Replicas int

	// MaxBytes bounds the stream on disk. When it is reached the server refuses
	// new events, and outboxes fill up instead; nothing that a consumer has not
	// read is thrown away. So size it for MaxAge, with an alarm at 70 %.
	// Defaults to 4 GiB.
	MaxBytes int64

	// MaxAge is how long events stay, read or not. A consumer that is away for
	// longer must be rebuilt from the outboxes. Defaults to 7 days.
	MaxAge time.Duration

	// Duplicates is how long the stream remembers the ids it has stored.
	// Defaults to 5 minutes.
	Duplicates time.Duration

	// AckWait is how long a message may go unanswered before it is delivered
	// again. Defaults to 15 s.
	AckWait time.Duration

	// MaxAckPending bounds the messages of one durable that are delivered and
	// not answered; those delayed by a Retry count. Defaults to 5000.
	MaxAckPending int

	// Subscriptions become durables. Others on the stream are left alone.
	Subscriptions []messaging.Subscription

	// Update allows changes of what exists, where the server can make them
	// without losing a position or a message.
	Update bool

	// Anew names durables that are deleted and made again, because they are
	// ahead of the stream. Each begins at the first event then, and inboxes say
	// what is new. One that is not ahead is an error: it would only cost time.
	Anew []string
}

// A Change is one difference between what exists and what should.
type Change struct {
	Object     string // "stream EVENTS", "durable points-awarder"
	Field      string // as the server spells it; empty if the object is missing
	Have, Want string
	InPlace    bool // the server can make the change and keep messages and positions
}

// String describes the change in one line.
func (c Change) String() string {
	if c.Field == "" {
		return c.Object + " is missing"
	}
	return fmt.Sprintf("%s: %s is %s, should be %s", c.Object, c.Field, c.Have, c.Want)
}

// EnsureTopology creates what is missing and does nothing where all is as it
// should be. A stream or durable that exists with other settings is an error
// that lists them; with t.Update it is changed, if that is possible in place.
//
// It is for those who own the topology, never for a service at its start: the
// replica that starts last would decide. It reads and compares before it
// writes, because a create request for a durable that exists, or an update
// that leaves a field out, resets what it does not name.
func EnsureTopology(ctx context.Context, url string, t Topology) error {
	return withJetStream(ctx, url, func(js jetstream.JetStream) error {
		p, err := newPlan(ctx, js, t)
		if err != nil {
			return err
		}
		return p.apply(ctx, js, t.Update)
	})
}

// PlanTopology returns what EnsureTopology would find different, and changes
// nothing.
func PlanTopology(ctx context.Context, url string, t Topology) ([]Change, error) {
	var changes []Change
	err := withJetStream(ctx, url, func(js jetstream.JetStream) error {
		p, err := newPlan(ctx, js, t)
		changes = p.changes()
		return err
	})
	return changes, err
}

// withJetStream uses a connection of its own: the owner of the topology has
// other permissions than the services.
func withJetStream(ctx context.Context, url string, use func(jetstream.JetStream) error) error {
	nc, err := Dial(ctx, url, "topology")
	if err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	if err := use(js); err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	return nil
}

func (t Topology) withDefaults() (Topology, error) {
	t.Stream = cmp.Or(t.Stream, DefaultStream)
	t.Replicas = cmp.Or(t.Replicas, 1)
	t.MaxBytes = cmp.Or(t.MaxBytes, 4<<30)
	t.MaxAge = cmp.Or(t.MaxAge, 7*24*time.Hour)
	t.Duplicates = cmp.Or(t.Duplicates, 5*time.Minute)
	t.AckWait = cmp.Or(t.AckWait, 15*time.Second)
	t.MaxAckPending = cmp.Or(t.MaxAckPending, 5000)
	if t.Replicas < 1 || t.MaxBytes < 1 || t.MaxAge < 1 || t.Duplicates < 1 || t.AckWait < 1 || t.MaxAckPending < 1 {
		return t, errors.New("limits must be positive")
	}
	seen := map[string]bool{}
	for _, sub := range t.Subscriptions {
		switch {
		case !clientName.MatchString(sub.Durable):
			return t, fmt.Errorf("durable name %q is not made of 1 to 64 letters, digits, '-' and '_'", sub.Durable)
		case seen[sub.Durable]:
			return t, fmt.Errorf("durable %s is named twice; each consumer has one of its own", sub.Durable)
		case len(sub.Kinds) == 0:
			return t, fmt.Errorf("durable %s names no kinds; it would deliver everything", sub.Durable)
		}
		seen[sub.Durable] = true
	}
	for _, name := range t.Anew {
		if !seen[name] {
			return t, fmt.Errorf("durable %q is none of this topology", name)
		}
	}
	return t, nil
}

// stream is the complete configuration: a field left out would be whatever the
// server's version takes for a default.
func (t Topology) stream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               t.Stream,
		Description:        "Events of all services, published by the relays from their outboxes.",
		Subjects:           []string{"shop.events.>"},
		Retention:          jetstream.LimitsPolicy, // the others drop what no consumer wants yet
		Discard:            jetstream.DiscardNew,   // the outbox waits; nothing is evicted unread
		Storage:            jetstream.FileStorage,
		Replicas:           t.Replicas,
		MaxBytes:           t.MaxBytes,
		MaxAge:             t.MaxAge,
		MaxMsgs:            -1,
		MaxMsgsPerSubject:  -1,
		MaxConsumers:       -1,
		MaxMsgSize:         MaxMessageBytes,
		Duplicates:         min(t.Duplicates, t.MaxAge), // the server allows no more
		AllowAtomicPublish: true,
		AllowDirect:        true,
		DenyDelete:         true, // the log is evidence
		DenyPurge:          true,
	}
}

func (t Topology) consumer(sub messaging.Subscription) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Name:           sub.Durable,
		Durable:        sub.Durable,
		FilterSubjects: subjectsOf(sub),
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		ReplayPolicy:   jetstream.ReplayInstantPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        t.AckWait,
		MaxDeliver:     -1, // the server never gives up on its own: that would be a gap that nobody sees
		MaxAckPending:  t.MaxAckPending,
		MaxWaiting:     512,
	}
}

// A plan is what was found and what should be, for each object.
type plan struct {
	stream    object[jetstream.StreamConfig]
	consumers []object[jetstream.ConsumerConfig]
}

type object[C any] struct {
	name    string
	want    C
	changes []Change
	anew    bool // it exists, and is deleted first
}

func newPlan(ctx context.Context, js jetstream.JetStream, t Topology) (plan, error) {
	var p plan
	t, err := t.withDefaults()
	if err != nil {
		return p, err
	}
	p.stream = object[jetstream.StreamConfig]{name: "stream " + t.Stream, want: t.stream()}
	stream, err := js.Stream(ctx, t.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		p.stream.changes = missing(p.stream.name)
	case err != nil:
		return p, fmt.Errorf("read %s: %w", p.stream.name, err)
	default:
		p.stream.changes, err = drift(p.stream.name, stream.CachedInfo().Config, p.stream.want, streamInPlace)
		if err != nil {
			return p, err
		}
	}
	for _, sub := range t.Subscriptions {
		o, err := t.durable(ctx, js, stream, sub)
		if err != nil {
			return p, err
		}
		p.consumers = append(p.consumers, o)
	}
	return p, nil
}

// durable reads one durable. Without a stream there is none.
func (t Topology) durable(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, sub messaging.Subscription) (object[jetstream.ConsumerConfig], error) {
	o := object[jetstream.ConsumerConfig]{name: "durable " + sub.Durable, want: t.consumer(sub)}
	consumer, err := js.Consumer(ctx, t.Stream, sub.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		o.changes = missing(o.name)
		return o, nil
	case err != nil:
		return o, fmt.Errorf("read %s: %w", o.name, err)
	}
	info := consumer.CachedInfo()
	if o.changes, err = drift(o.name, normal(info.Config), o.want, consumerInPlace); err != nil {
		return o, err
	}
	beyond, err := ahead(ctx, stream, info)
	o.anew = slices.Contains(t.Anew, sub.Durable)
	switch {
	case err != nil:
		return o, fmt.Errorf("compare %s with the stream: %w", o.name, err)
	case o.anew && beyond == 0:
		return o, fmt.Errorf("%s is not ahead of the stream: it is not made anew", o.name)
	case o.anew:
		o.changes = missing(o.name)
	case beyond > 0:
		at := furthest(info)
		o.changes = append(o.changes, Change{Object: o.name, Field: "delivered", Have: fmt.Sprint(at), Want: fmt.Sprintf("at most %d", at-beyond)})
	}
	return o, nil
}

func missing(name string) []Change { return []Change{{Object: name, InPlace: true}} }

func (p plan) changes() []Change {
	changes := slices.Clone(p.stream.changes)
	for _, c := range p.consumers {
		changes = append(changes, c.changes...)
	}
	return changes
}

// ErrDrift: what exists differs from what should, and was not changed.
var ErrDrift = errors.New("differs from what it should be")

// apply makes the changes, or none of them if one is not allowed.
func (p plan) apply(ctx context.Context, js jetstream.JetStream, update bool) error {
	var forbidden []string
	for _, c := range p.changes() {
		if c.Field != "" && !(update && c.InPlace) {
			forbidden = append(forbidden, c.String())
		}
	}
	if len(forbidden) > 0 {
		return fmt.Errorf("%w: %s", ErrDrift, strings.Join(forbidden, "; "))
	}
	err := p.stream.apply(
		func(c jetstream.StreamConfig) error { _, err := js.CreateStream(ctx, c); return roomFor(c, err) },
		func(c jetstream.StreamConfig) error { _, err := js.UpdateStream(ctx, c); return roomFor(c, err) })
	for _, o := range p.consumers {
		if err != nil {
			break
		}
		err = o.apply(
			func(c jetstream.ConsumerConfig) error {
				if o.anew {
					if err := js.DeleteConsumer(ctx, p.stream.want.Name, c.Durable); err != nil {
						return err
					}
				}
				_, err := js.CreateConsumer(ctx, p.stream.want.Name, c)
				return err
			},
			func(c jetstream.ConsumerConfig) error {
				_, err := js.UpdateConsumer(ctx, p.stream.want.Name, c)
				return err
			})
	}
	return err
}

// roomFor says what is missing where a server has no room for the stream. A
// stream's bound is set aside when it is made, and the server's own words name
// neither the bound nor where its limit comes from.
func roomFor(c jetstream.StreamConfig, err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == codeNoStorage {
		return fmt.Errorf("the server cannot set aside the %d MiB that the stream may take; without max_file_store its limit is three quarters of the disk that was free when it started: %w",
			c.MaxBytes>>20, err)
	}
	return err
}

func (o object[C]) apply(create, update func(C) error) error {
	switch {
	case len(o.changes) == 0:
		return nil
	case o.changes[0].Field == "":
		if err := create(o.want); err != nil {
			return fmt.Errorf("create %s: %w", o.name, err)
		}
	default:
		if err := update(o.want); err != nil {
			return fmt.Errorf("update %s: %w", o.name, err)
		}
	}
	return nil
}
