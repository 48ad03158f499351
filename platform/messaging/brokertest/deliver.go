package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"orderpaid/platform/messaging"
)

func subscriptionsAreIndependent(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder, sender)
	list := messages(10, 2)
	publish(t, h, list...)
	ackAll(t, fetch(t, bind(t, h, awarder), len(list)))
	got := fetch(t, bind(t, h, sender), len(list))
	for i, d := range got {
		if d.Attempt() != 1 {
			t.Errorf("message %d: attempt %d, want 1: the other durable had it", i, d.Attempt())
		}
	}
	requireOrder(t, got)
}

func filteredIsNotDelivered(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder, sender)
	publish(t, h, message(refunded, "order/a", 0), message(paid2, "order/a", 1), message(paid, "order/a", 2))
	got := fetch(t, bind(t, h, sender), 1)[0]
	if want := paid.Subject(messaging.ShardOf("order/a")); got.Subject() != want {
		t.Errorf("got %s, want %s", got.Subject(), want)
	}
	both := fetch(t, bind(t, h, awarder), 2)
	if got, want := both[1].Sequence()-both[0].Sequence(), uint64(2); got != want {
		t.Errorf("the distance is %d, want %d: version 2 is not subscribed to", got, want)
	}
}

func acknowledgedDoesNotComeAgain(t *testing.T, new startFunc) {
	h := start(t, new, shortWait, awarder)
	publish(t, h, messages(5, 5)...)
	source := bind(t, h, awarder)
	ackAll(t, fetch(t, source, 5))
	fetchNothing(t, source, 3*shortWait)
}

func unansweredComesAgain(t *testing.T, new startFunc) {
	h := start(t, new, shortWait, awarder)
	publish(t, h, messages(1, 1)...)
	source := bind(t, h, awarder)
	first := fetch(t, source, 1)[0]
	second := fetch(t, source, 1)[0]
	if got, want := second.Sequence(), first.Sequence(); got != want {
		t.Errorf("got sequence %d, want %d", got, want)
	}
	if got, want := second.Attempt(), 2; got != want {
		t.Errorf("attempt is %d, want %d", got, want)
	}
	ackAll(t, []messaging.Delivery{second})
	fetchNothing(t, source, 3*shortWait)
}

func retriedComesAgain(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	publish(t, h, messages(2, 2)...)
	source := bind(t, h, awarder)
	pair := fetch(t, source, 2)
	const delay = 400 * time.Millisecond
	begin := time.Now()
	if err := errors.Join(pair[0].Retry(delay), pair[1].Ack()); err != nil {
		t.Fatal(err)
	}
	again := fetch(t, source, 1)[0]
	if waited := time.Since(begin); waited < delay {
		t.Errorf("it came again after %v, want at least %v", waited, delay)
	}
	if got, want := again.Sequence(), pair[0].Sequence(); got != want {
		t.Errorf("got sequence %d, want %d", got, want)
	}
	if err := again.Retry(0); err != nil {
		t.Fatal(err)
	}
	if got, want := fetch(t, source, 1)[0].Attempt(), 3; got != want {
		t.Errorf("attempt is %d, want %d", got, want)
	}
}

func progressPostpones(t *testing.T, new startFunc) {
	const wait = 4 * shortWait // long beside a pause of the scheduler
	h := start(t, new, wait, awarder)
	publish(t, h, messages(1, 1)...)
	source := bind(t, h, awarder)
	d := fetch(t, source, 1)[0]
	for begin := time.Now(); time.Since(begin) < 2*wait; {
		if err := d.InProgress(); err != nil {
			t.Fatal(err)
		}
		fetchNothing(t, source, wait/4)
	}
	if got, want := fetch(t, source, 1)[0].Attempt(), 2; got != want {
		t.Errorf("attempt is %d, want %d", got, want)
	}
}

func secondAnswerIsAnError(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	publish(t, h, messages(1, 1)...)
	d := fetch(t, bind(t, h, awarder), 1)[0]
	ackAll(t, []messaging.Delivery{d})
	if d.Retry(0) == nil || d.Ack() == nil {
		t.Error("a second answer was taken")
	}
}

func traceTravels(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	parents := []string{parent, "", "rubbish", "00-" + parent, parent + "\r\nNats-Msg-Id: x",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01"}
	list := messages(len(parents), 1)
	for i := range list {
		list[i].TraceParent = parents[i]
	}
	publish(t, h, list...)
	for i, d := range fetch(t, bind(t, h, awarder), len(list)) {
		want := ""
		if i == 0 {
			want = parent
		}
		if got := d.Header("traceparent"); got != want {
			t.Errorf("%q travels as %q, want %q", parents[i], got, want)
		}
		if _, there := d.Headers()["traceparent"]; there != (want != "") || d.Header("Traceparent") != "" {
			t.Errorf("%q: headers are %v", parents[i], d.Headers())
		}
	}
}

func fetchKeepsMaximum(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	publish(t, h, messages(25, 25)...)
	source := bind(t, h, awarder)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for total := 0; total < 25; {
		group, err := source.Fetch(ctx, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(group) == 0 || len(group) > 10 {
			t.Fatalf("got %d messages, want 1 to 10", len(group))
		}
		total += len(group)
	}
}

func fetchReturnsWhenDone(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	source := bind(t, h, awarder)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := source.Fetch(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	publish(t, h, messages(1, 1)...)
	if _, err := source.Fetch(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	if got, want := fetch(t, source, 1)[0].Attempt(), 1; got != want {
		t.Errorf("attempt is %d, want %d: nothing was lost", got, want)
	}
}

func closeHandsBack(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	list := messages(50, 3)
	publish(t, h, list...)
	first := bind(t, h, awarder)
	ackAll(t, fetch(t, first, 1))
	first.Close()
	if _, err := first.Fetch(t.Context(), 1); err == nil {
		t.Error("a closed source delivers")
	}
	got := fetch(t, bind(t, h, awarder), len(list)-1) // patience is far below longWait
	for _, d := range got {
		if d.Sequence() == 1 {
			t.Error("the acknowledged message came again")
		}
	}
}

func answerAfterCloseCounts(t *testing.T, new startFunc) {
	h := start(t, new, shortWait, awarder)
	publish(t, h, messages(3, 3)...)
	first := bind(t, h, awarder)
	got := fetch(t, first, 3)
	first.Close()
	ackAll(t, got)
	fetchNothing(t, bind(t, h, awarder), 3*shortWait)
}

func bindingFails(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	tests := map[string]struct {
		sub  messaging.Subscription
		gone bool
	}{
		"missing":       {messaging.Subscription{Durable: "nobody", Kinds: awarder.Kinds}, true},
		"fewer kinds":   {messaging.Subscription{Durable: awarder.Durable, Kinds: []messaging.Kind{paid}}, false},
		"other version": {messaging.Subscription{Durable: awarder.Durable, Kinds: []messaging.Kind{paid2, refunded}}, false},
		"more kinds":    {messaging.Subscription{Durable: awarder.Durable, Kinds: []messaging.Kind{paid, paid2, refunded}}, false},
	}
	for name, tt := range tests {
		_, err := h.Subscriber.Subscribe(t.Context(), tt.sub)
		if err == nil {
			t.Errorf("%s: bound", name)
		}
		if got := errors.Is(err, messaging.ErrSubscriptionGone); got != tt.gone {
			t.Errorf("%s: %v; that it does not exist is %t, want %t", name, err, got, tt.gone)
		}
	}
	reordered := messaging.Subscription{Durable: awarder.Durable, Kinds: []messaging.Kind{refunded, paid}}
	bind(t, h, reordered)
}

func deletedDurable(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	source := bind(t, h, awarder)
	fetchNothing(t, source, 10*time.Millisecond)
	h.DeleteDurable(t, awarder.Durable)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := source.Fetch(ctx, 1)
		if errors.Is(err, messaging.ErrSubscriptionGone) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("got %v, want %v", err, messaging.ErrSubscriptionGone)
		}
	}
}
