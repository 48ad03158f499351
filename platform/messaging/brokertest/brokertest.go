// Package brokertest is the contract of [messaging.Publisher] and
// [messaging.Subscriber] as tests. Every adapter runs the whole suite, so that
// what is proven with one broker holds for the other.
//
// publish.go has the tests about storing, deliver.go those about delivering.
package brokertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
)

// Setup is what a test needs of a fresh broker.
type Setup struct {
	Subscriptions []messaging.Subscription // the durables that exist
	AckWait       time.Duration            // of all of them
}

// A Harness is one adapter with a broker that no other test uses.
type Harness struct {
	Publisher  messaging.Publisher
	Subscriber messaging.Subscriber

	// LoseAnswers makes the next call of Publish store its messages without
	// learning of it.
	LoseAnswers func(t *testing.T)

	// DeleteDurable does what an administrator could do by mistake.
	DeleteDurable func(t *testing.T, name string)
}

// Run runs the suite. start is called once for each test; what it starts must
// end with that test.
func Run(t *testing.T, start func(*testing.T, Setup) Harness) {
	tests := []struct {
		name string
		test func(*testing.T, func(*testing.T, Setup) Harness)
	}{
		{"MessagesOfOneKeyKeepTheirOrder", messagesOfOneKeyKeepTheirOrder},
		{"ReceiptsNameTheSequenceOfTheDelivery", receiptsNameTheSequence},
		{"ADuplicateAnswersWithTheFirstSequence", duplicateAnswersWithFirstSequence},
		{"ADuplicateInsideABatchStoresTheRest", duplicateInsideBatch},
		{"ALostAnswerThenTheSameIDsStoresOnce", lostAnswerStoresOnce},
		{"NothingOvertakesAMessageThatWasNotStored", nothingOvertakes},
		{"AnyMixtureOfGoodAndBadKeepsTheRule", anyMixture},
		{"WhatCanNeverBeStoredIsRefused", neverStorableIsRefused},
		{"NothingIsSentWhenTheContextIsDone", nothingSentWhenDone},
		{"ConcurrentPublishersKeepEachKeysOrder", concurrentPublishers},
		{"TwoSubscriptionsAreIndependent", subscriptionsAreIndependent},
		{"AKindThatIsFilteredIsNotDelivered", filteredIsNotDelivered},
		{"AnAcknowledgedMessageDoesNotComeAgain", acknowledgedDoesNotComeAgain},
		{"AnUnansweredMessageComesAgain", unansweredComesAgain},
		{"ARetriedMessageComesAgainAfterItsDelay", retriedComesAgain},
		{"ProgressPostponesTheRedelivery", progressPostpones},
		{"ASecondAnswerIsAnError", secondAnswerIsAnError},
		{"TheTraceTravelsAsAHeader", traceTravels},
		{"FetchKeepsToItsMaximum", fetchKeepsMaximum},
		{"FetchReturnsWhenItsContextEnds", fetchReturnsWhenDone},
		{"CloseHandsBackWhatWasNotFetched", closeHandsBack},
		{"AnAnswerAfterCloseCounts", answerAfterCloseCounts},
		{"BindingFailsForAMissingOrDifferentDurable", bindingFails},
		{"ADeletedDurableEndsTheSource", deletedDurable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.test(t, start)
		})
	}
}

// The kinds and durables of the suite.
var (
	paid     = messaging.Kind{Context: "order", Type: "OrderPaid", Version: 1, Aggregate: "order"}
	paid2    = messaging.Kind{Context: "order", Type: "OrderPaid", Version: 2, Aggregate: "order"}
	refunded = messaging.Kind{Context: "order", Type: "OrderRefunded", Version: 1, Aggregate: "order"}
	awarder  = messaging.Subscription{Durable: "points-awarder", Kinds: []messaging.Kind{paid, refunded}}
	sender   = messaging.Subscription{Durable: "notify-sender", Kinds: []messaging.Kind{paid}}
)

// Two acknowledgement waits: one that a test can wait for, one that it cannot.
const (
	shortWait = 500 * time.Millisecond
	longWait  = 5 * time.Minute
)

// patience bounds what should happen at once, on a machine that is busy.
const patience = 30 * time.Second

func start(t *testing.T, new func(*testing.T, Setup) Harness, ackWait time.Duration, subs ...messaging.Subscription) Harness {
	t.Helper()
	return new(t, Setup{Subscriptions: subs, AckWait: ackWait})
}

// message returns a new message; its data tells key and number.
func message(kind messaging.Kind, key string, number int) messaging.Message {
	return messaging.Message{
		ID:      uuid.Must(uuid.NewV7()),
		Key:     key,
		Subject: kind.Subject(messaging.ShardOf(key)),
		Data:    fmt.Appendf(nil, `{"key": %q, "number": %d}`, key, number),
	}
}

// messages returns count messages, dealt out to keys in turn.
func messages(count, keys int) []messaging.Message {
	list := make([]messaging.Message, count)
	for i := range list {
		list[i] = message(paid, fmt.Sprintf("order/%d", i%keys), i)
	}
	return list
}

// publish stores messages and fails the test if one is not stored.
func publish(t *testing.T, h Harness, list ...messaging.Message) []messaging.Receipt {
	t.Helper()
	receipts := try(t, h, list...)
	for i, r := range receipts {
		if r.Err != nil {
			t.Fatalf("message %d: %v", i, r.Err)
		}
	}
	return receipts
}

// try publishes and returns whatever the broker says.
func try(t *testing.T, h Harness, list ...messaging.Message) []messaging.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	receipts := h.Publisher.Publish(ctx, list)
	if got, want := len(receipts), len(list); got != want {
		t.Fatalf("%d receipts for %d messages", got, want)
	}
	return receipts
}

// bind subscribes until the test ends.
func bind(t *testing.T, h Harness, sub messaging.Subscription) messaging.Source {
	t.Helper()
	source, err := h.Subscriber.Subscribe(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return source
}

// fetch returns exactly count deliveries.
func fetch(t *testing.T, source messaging.Source, count int) []messaging.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []messaging.Delivery
	for len(all) < count {
		group, err := source.Fetch(ctx, count-len(all))
		if err != nil {
			t.Fatalf("after %d of %d deliveries: %v", len(all), count, err)
		}
		all = append(all, group...)
	}
	return all
}

// fetchNothing fails if a delivery comes within the given time.
func fetchNothing(t *testing.T, source messaging.Source, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	group, err := source.Fetch(ctx, 1)
	if len(group) > 0 {
		t.Fatalf("got sequence %d, attempt %d: %s; want nothing", group[0].Sequence(), group[0].Attempt(), group[0].Data())
	}
	if ctx.Err() == nil {
		t.Fatal(err)
	}
}

func ackAll(t *testing.T, deliveries []messaging.Delivery) {
	t.Helper()
	for _, d := range deliveries {
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
	}
}
