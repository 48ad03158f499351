package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
)

// Subscribe implements [messaging.Subscriber]. It needs the permissions to ask
// for the durable's info and its messages, and no more.
//
// While NATS or its stream is away the error matches
// [messaging.ErrUnavailable]; a durable that does not exist matches
// [messaging.ErrSubscriptionGone]; one that is set up otherwise than the
// subscription needs is an error that only a change of topology can mend.
func (b *Broker) Subscribe(ctx context.Context, sub messaging.Subscription) (messaging.Source, error) {
	info, err := b.inspect(ctx, sub)
	if err != nil {
		return nil, err
	}
	return b.open(sub, info)
}

// inspect reads the durable's state and checks that it is the one that the
// subscription means. It changes nothing: a service that creates or updates
// durables on its own undoes, at its next restart, what others have set.
func (b *Broker) inspect(ctx context.Context, sub messaging.Subscription) (*jetstream.ConsumerInfo, error) {
	consumer, err := b.js.Consumer(ctx, b.cfg.Stream, sub.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrConsumerDoesNotExist):
		return nil, fmt.Errorf("bind durable %s: %w", sub.Durable, messaging.ErrSubscriptionGone)
	case errors.Is(err, jetstream.ErrInvalidConsumerName):
		return nil, fmt.Errorf("bind durable %q: %w", sub.Durable, err)
	case err != nil: // no answer, no stream, no leader
		return nil, fmt.Errorf("bind durable %s: %w", sub.Durable, unavailable(err))
	}
	info := consumer.CachedInfo()
	if err := fits(info.Config, sub, b.cfg.Prefetch); err != nil {
		return nil, fmt.Errorf("bind durable %s: %w", sub.Durable, err)
	}
	return info, nil
}

// fits says what about a durable contradicts the subscription, or nil.
func fits(c jetstream.ConsumerConfig, sub messaging.Subscription, prefetch int) error {
	have, exact := filters(c), kindFilters(sub.Kinds)
	switch {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return fmt.Errorf("it acknowledges by policy %v, not each message", c.AckPolicy)
	case c.MaxDeliver > 0:
		return fmt.Errorf("it drops a message after %d deliveries; attempts are counted in the database", c.MaxDeliver)
	case len(c.BackOff) > 0: // the server then computes the delay of a Retry from the wrong base
		return errors.New("it has a backoff; delays are set message by message")
	case c.HeadersOnly:
		return errors.New("it delivers headers only")
	case c.MaxAckPending > 0 && prefetch >= c.MaxAckPending:
		return fmt.Errorf("prefetch of %d is not below its %d messages in flight", prefetch, c.MaxAckPending)
	// A wide one may be exact: so that services can be replaced before the
	// topology, and never receive what they do not expect.
	case !slices.Equal(have, exact) && !slices.Equal(have, subjectsOf(sub)):
		return fmt.Errorf("it delivers %s, not %s", strings.Join(have, ", "), strings.Join(subjectsOf(sub), ", "))
	}
	return nil
}

func filters(c jetstream.ConsumerConfig) []string {
	subjects := slices.Clone(c.FilterSubjects)
	if c.FilterSubject != "" {
		subjects = append(subjects, c.FilterSubject)
	}
	slices.Sort(subjects)
	return subjects
}

// subjectsOf returns by which subjects the durable of a subscription chooses.
func subjectsOf(sub messaging.Subscription) []string {
	if sub.Wide {
		return []string{covering(sub.Kinds)}
	}
	return kindFilters(sub.Kinds)
}

// covering returns the narrowest pattern that matches all kinds: what they
// share is spelt out, and any token may stand where they differ.
func covering(kinds []messaging.Kind) string {
	var tokens []string
	for _, kind := range kinds {
		for i, token := range strings.Split(kind.Filter(), ".") {
			switch {
			case i == len(tokens):
				tokens = append(tokens, token)
			case tokens[i] != token:
				tokens[i] = "*"
			}
		}
	}
	return strings.Join(tokens, ".")
}

// A kindSet tells by their subjects which messages are of its kinds, whatever
// their shard.
type kindSet map[string]bool

func newKindSet(kinds []messaging.Kind) kindSet {
	set := make(kindSet, len(kinds))
	for _, kind := range kinds {
		set[strings.TrimSuffix(kind.Filter(), ".*")] = true
	}
	return set
}

func (s kindSet) has(subject string) bool {
	return s[subject[:max(0, strings.LastIndexByte(subject, '.'))]]
}

func kindFilters(kinds []messaging.Kind) []string {
	subjects := make([]string, len(kinds))
	for i, kind := range kinds {
		subjects[i] = kind.Filter()
	}
	slices.Sort(subjects)
	return slices.Compact(subjects)
}
