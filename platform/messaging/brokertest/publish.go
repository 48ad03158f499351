package brokertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
)

type startFunc = func(*testing.T, Setup) Harness

func messagesOfOneKeyKeepTheirOrder(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	list := messages(300, 7)
	for batch := range 6 {
		publish(t, h, list[batch*50:(batch+1)*50]...)
	}
	requireOrder(t, fetch(t, bind(t, h, awarder), len(list)))
}

// requireOrder checks that the numbers of each key rise.
func requireOrder(t *testing.T, deliveries []messaging.Delivery) {
	t.Helper()
	last := map[string]int{}
	for _, d := range deliveries {
		var m struct {
			Key    string
			Number int
		}
		if err := json.Unmarshal(d.Data(), &m); err != nil {
			t.Fatal(err)
		}
		if before, seen := last[m.Key]; seen && m.Number <= before {
			t.Errorf("%s: number %d came after %d", m.Key, m.Number, before)
		}
		last[m.Key] = m.Number
	}
}

func receiptsNameTheSequence(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	list := messages(20, 3)
	receipts := publish(t, h, list[0])
	receipts = append(receipts, publish(t, h, list[1:]...)...)
	for i, d := range fetch(t, bind(t, h, awarder), len(list)) {
		if got, want := d.Sequence(), receipts[i].Sequence; got != want {
			t.Errorf("message %d is at %d, its receipt says %d", i, got, want)
		}
		if got, want := d.Stream(), receipts[i].Stream; got != want || got == "" {
			t.Errorf("stream is %q, the receipt says %q", got, want)
		}
		if got, want := d.Subject(), list[i].Subject; got != want {
			t.Errorf("subject is %q, want %q", got, want)
		}
		if got, want := d.Data(), list[i].Data; !bytes.Equal(got, want) {
			t.Errorf("data is %s, want %s", got, want)
		}
		if receipts[i].Duplicate || d.StoredAt().IsZero() || d.Attempt() != 1 {
			t.Errorf("duplicate %t, stored at %v, attempt %d; want a first delivery", receipts[i].Duplicate, d.StoredAt(), d.Attempt())
		}
	}
}

func duplicateAnswersWithFirstSequence(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	list := messages(10, 2)
	first := publish(t, h, list...)
	again := publish(t, h, list[3])
	again = append(again, publish(t, h, list...)...)
	for i, r := range again {
		want := first[max(0, i-1)]
		if i == 0 {
			want = first[3]
		}
		if r.Sequence != want.Sequence || r.Stream != want.Stream || !r.Duplicate {
			t.Errorf("got %+v, want a duplicate of %+v", r, want)
		}
	}
	source := bind(t, h, awarder)
	ackAll(t, fetch(t, source, len(list)))
	fetchNothing(t, source, shortWait)
}

func duplicateInsideBatch(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	list := messages(30, 4)
	early := publish(t, h, list[0])[0]
	receipts := publish(t, h, list...)
	for i, r := range receipts {
		if got, want := r.Duplicate, i == 0; got != want {
			t.Errorf("message %d: duplicate is %t, want %t", i, got, want)
		}
	}
	if got, want := receipts[0].Sequence, early.Sequence; got != want {
		t.Errorf("the duplicate is at %d, want %d", got, want)
	}
	source := bind(t, h, awarder)
	got := fetch(t, source, len(list))
	requireOrder(t, got)
	ackAll(t, got)
	fetchNothing(t, source, shortWait)
}

func lostAnswerStoresOnce(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	list := messages(40, 5)
	h.LoseAnswers(t)
	unknown := 0
	for i, r := range try(t, h, list...) {
		switch {
		case errors.Is(r.Err, messaging.ErrUnknownOutcome):
			unknown++
		case r.Err != nil && !errors.Is(r.Err, messaging.ErrBehind):
			t.Errorf("message %d: %v, want an unknown outcome", i, r.Err)
		}
	}
	if unknown == 0 {
		t.Error("every answer arrived; the test lost none")
	}
	again := untilStored(t, h, list)
	source := bind(t, h, awarder)
	got := fetch(t, source, len(list))
	requireOrder(t, got)
	for i, d := range got {
		if d.Sequence() != again[i].Sequence {
			t.Errorf("message %d is at %d, its receipt says %d", i, d.Sequence(), again[i].Sequence)
		}
	}
	ackAll(t, got)
	fetchNothing(t, source, shortWait)
}

// untilStored publishes the same messages until all are acknowledged, as a
// relay does.
func untilStored(t *testing.T, h Harness, list []messaging.Message) []messaging.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		receipts := h.Publisher.Publish(ctx, list)
		var failed error
		for _, r := range receipts {
			if r.Err != nil && failed == nil {
				failed = r.Err
			}
		}
		if failed == nil {
			return receipts
		}
		if ctx.Err() != nil {
			t.Fatalf("not stored in time: %v", failed)
		}
	}
}

func nothingOvertakes(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	list := []messaging.Message{
		message(paid, "order/a", 0), message(paid, "order/b", 0), message(paid, "order/a", 1),
		message(paid, "order/a", 2), message(paid, "order/b", 1), message(paid, "order/a", 3),
	}
	sound := list[2].Subject
	list[2].Subject = "shop.events.order.Order Paid.v1.p00"
	wants := []error{nil, nil, messaging.ErrRefused, messaging.ErrBehind, nil, messaging.ErrBehind}
	for i, r := range try(t, h, list...) {
		if got, want := r.Err, wants[i]; !errors.Is(got, want) {
			t.Errorf("message %d: %v, want %v", i, got, want)
		}
	}
	list[2].Subject = sound
	publish(t, h, list[2], list[3], list[5])
	requireOrder(t, fetch(t, bind(t, h, awarder), len(list)))
}

// anyMixture publishes random lists with random bad messages among them, until
// only good ones are left. Of each key a prefix is stored, then one message is
// refused, and nothing behind it was sent.
func anyMixture(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	random := rand.New(rand.NewPCG(1, 2))
	total := 0
	for range 25 {
		list := messages(1+random.IntN(60), 1+random.IntN(6))
		good := make([]string, len(list))
		for i := range list {
			good[i] = list[i].Subject
			if random.IntN(12) == 0 {
				list[i].Subject = "not one of an event"
			}
		}
		total += len(list)
		for receipts := try(t, h, list...); ; receipts = try(t, h, list...) {
			requirePrefixes(t, list, receipts)
			repaired := 0
			for i := range list {
				if errors.Is(receipts[i].Err, messaging.ErrRefused) {
					list[i].Subject = good[i]
					repaired++
				}
			}
			if repaired == 0 {
				break
			}
		}
	}
	source := bind(t, h, awarder)
	got := fetch(t, source, total)
	ackAll(t, got)
	fetchNothing(t, source, shortWait)
}

func requirePrefixes(t *testing.T, list []messaging.Message, receipts []messaging.Receipt) {
	t.Helper()
	last := map[string]uint64{}
	stopped := map[string]bool{}
	for i, r := range receipts {
		key := list[i].Key
		switch {
		case r.Err == nil && stopped[key]:
			t.Fatalf("message %d of %s is stored, an earlier one is not", i, key)
		case r.Err == nil && r.Sequence <= last[key]:
			t.Fatalf("message %d of %s is at %d, the one before at %d", i, key, r.Sequence, last[key])
		case r.Err != nil && !stopped[key] && !errors.Is(r.Err, messaging.ErrRefused):
			t.Fatalf("message %d of %s, the first without success: %v", i, key, r.Err)
		case r.Err != nil && stopped[key] && !errors.Is(r.Err, messaging.ErrBehind):
			t.Fatalf("message %d of %s, behind one without success: %v", i, key, r.Err)
		}
		last[key] = r.Sequence
		stopped[key] = stopped[key] || r.Err != nil
	}
}

func neverStorableIsRefused(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	tests := map[string]func(*messaging.Message){
		"no id":                 func(m *messaging.Message) { m.ID = uuid.Nil },
		"no key":                func(m *messaging.Message) { m.Key = "" },
		"no subject":            func(m *messaging.Message) { m.Subject = "" },
		"a blank in it":         func(m *messaging.Message) { m.Subject = "shop.events.order.Order Paid.v1.p00" },
		"a line break in it":    func(m *messaging.Message) { m.Subject = "shop.events.order.OrderPaid.v1\r\nPUB x" },
		"a wildcard":            func(m *messaging.Message) { m.Subject = "shop.events.order.*.v1.p00" },
		"a full wildcard":       func(m *messaging.Message) { m.Subject = "shop.events.>" },
		"a leading dot":         func(m *messaging.Message) { m.Subject = ".shop.events.order.OrderPaid.v1.p00" },
		"an empty token":        func(m *messaging.Message) { m.Subject = "shop.events..OrderPaid.v1.p00" },
		"another subject space": func(m *messaging.Message) { m.Subject = "$JS.API.STREAM.DELETE.EVENTS" },
		"too large":             func(m *messaging.Message) { m.Data = bytes.Repeat([]byte("x"), messaging.MaxEventBytes+1) },
	}
	for name, spoil := range tests {
		bad := message(paid, "order/bad", 0)
		spoil(&bad)
		receipts := try(t, h, bad, message(paid, "order/good", 0))
		if got, want := receipts[0].Err, messaging.ErrRefused; !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if err := receipts[1].Err; err != nil {
			t.Errorf("%s: the good one: %v", name, err)
		}
	}
	largest := message(paid, "order/large", 0)
	largest.Data = []byte(strings.Repeat("x", messaging.MaxEventBytes))
	publish(t, h, largest)
}

func nothingSentWhenDone(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, r := range h.Publisher.Publish(ctx, messages(3, 3)) {
		if got, want := r.Err, messaging.ErrUnavailable; !errors.Is(got, want) {
			t.Errorf("message %d: %v, want %v", i, got, want)
		}
	}
	if got := h.Publisher.Publish(t.Context(), nil); len(got) != 0 {
		t.Errorf("%d receipts for no messages", len(got))
	}
	fetchNothing(t, bind(t, h, awarder), shortWait)
}

func concurrentPublishers(t *testing.T, new startFunc) {
	h := start(t, new, longWait, awarder)
	const publishers, batches, size = 4, 5, 20
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			key := fmt.Sprintf("order/%d", p)
			for batch := range batches {
				list := make([]messaging.Message, size)
				for i := range list {
					list[i] = message(paid, key, batch*size+i)
				}
				for _, r := range h.Publisher.Publish(t.Context(), list) {
					if r.Err != nil {
						t.Errorf("%s: %v", key, r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	requireOrder(t, fetch(t, bind(t, h, awarder), publishers*batches*size))
}
