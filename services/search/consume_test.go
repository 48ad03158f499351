package search

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderpaid/platform/messaging"
)

func TestADocumentFollowsItsOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()

	f.deliver(t, created(t, order, "u1", "Backpack"))
	want := Document{OrderID: order, UserID: "u1", State: StatePendingPayment,
		Items: []Item{{"SKU-1", map[string]string{"en": "Backpack"}, 1, 10000}},
		Total: Money{10000, "CNY", 2}, Refunded: Money{0, "CNY", 2}, CreatedAt: noon, Version: 1}
	requireDocument(t, f, want)

	f.deliver(t, paid(t, order, 2))
	want.State, want.PaidAt, want.Version = StatePaid, at(noon.Add(time.Minute)), 2
	requireDocument(t, f, want)

	f.deliver(t, refunded(t, order, 3, 4000))
	want.Refunded.Amount, want.RefundedAt, want.Version = 4000, at(noon.Add(3*time.Hour)), 3
	requireDocument(t, f, want)

	f.deliver(t, refunded(t, order, 4, 10000))
	want.Refunded.Amount, want.RefundedAt, want.Version = 10000, at(noon.Add(4*time.Hour)), 4
	requireDocument(t, f, want)
}

func TestACancelledOrderSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, created(t, order, "u1", "Backpack"), cancelled(t, order, 2))
	if got := f.document(t); got.State != StateCancelled || got.CancelledAt == nil || got.PaidAt != nil {
		t.Errorf("got %+v", got)
	}
}

func TestAWholeLifeInOneGroupIsApplied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, created(t, order, "u1", "Backpack"), paid(t, order, 2), refunded(t, order, 3, 1000), refunded(t, order, 4, 2500))
	if got := f.document(t); got.State != StatePaid || got.Refunded.Amount != 2500 || got.Version != 4 {
		t.Errorf("got %+v", got)
	}
}

func TestOrderPaidBeforeOrderCreatedLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliverEarly(t, paid(t, order, 2))
	if got := f.search(t).Orders; len(got) != 0 {
		t.Fatalf("an order that was never created is found: %+v", got)
	}
	f.deliverEarly(t, created(t, order, "u1", "Backpack"))
	if got := f.document(t); got.State != StatePaid || got.Version != 2 {
		t.Errorf("got %+v", got)
	}
}

// C33: the case of stale updates that overwrite newer ones: 1, 3, 2, all stated
// within one millisecond.
func TestVersionsOneThreeTwoOfOneMillisecondEndInTheHighest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	sameTime := func(message []byte) []byte {
		return with(t, message, func(e *messaging.Envelope) { e.OccurredAt = noon })
	}
	one, two, three := sameTime(created(t, order, "u1", "Backpack")), sameTime(paid(t, order, 2)), sameTime(refunded(t, order, 3, 10000))

	f.deliverEarly(t, one)
	f.deliverEarly(t, three)
	f.deliverEarly(t, two)
	f.deliverEarly(t, two, three, one) // and everything once more, late

	if got := f.document(t); got.Version != 3 || got.Refunded.Amount != 10000 || got.PaidAt == nil {
		t.Errorf("got %+v", got)
	}
}

func TestDuplicatesChangeNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	events := [][]byte{created(t, order, "u1", "Backpack"), paid(t, order, 2), refunded(t, order, 3, 1000)}
	f.deliver(t, events...)
	before := f.document(t)
	f.deliver(t, append(slices.Clone(events), events...)...)
	if diff := cmp.Diff(before, f.document(t)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if got, want := f.count(t, `SELECT count(*) FROM message_inbox`), 3; got != want {
		t.Errorf("inbox rows: got %d, want %d", got, want)
	}
}

// An old version under a new event id is no duplicate for the inbox; the
// version rule keeps it out.
func TestAnOldVersionUnderANewEventIDIsStale(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, created(t, order, "u1", "Backpack"), cancelled(t, order, 2))
	f.deliver(t, paid(t, order, 2), created(t, order, "u2", "Tent"))
	if got := f.document(t); got.State != StateCancelled || got.UserID != "u1" {
		t.Errorf("got %+v", got)
	}
	if got, want := f.count(t, `SELECT count(*) FROM message_inbox WHERE result = 'stale'`), 2; got != want {
		t.Errorf("stale events: got %d, want %d", got, want)
	}
}

func TestManyOrdersInAnyOrderEndAsTheyShould(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	random := rand.New(rand.NewPCG(1, 2))
	var events [][]byte
	want := map[string]int64{}
	for range 120 {
		order := newOrder()
		life := [][]byte{created(t, order, "u1", "Backpack"), paid(t, order, 2), refunded(t, order, 3, 100), refunded(t, order, 4, 300)}
		life = life[:1+random.IntN(4)]
		want[order] = int64(len(life))
		events = append(events, life...)
		events = append(events, life[random.IntN(len(life))]) // and one of them twice
	}
	random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })

	for batch := range slices.Chunk(events, 37) {
		f.deliverEarly(t, batch...)
	}
	got := map[string]int64{}
	for cursor := ""; ; {
		page := f.search(t, "limit", "100", "cursor", cursor)
		for _, d := range page.Orders {
			got[d.OrderID] = d.Version
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

func TestWhatIsNotAnOrderEventBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	good := newOrder()
	withData := func(data string) func(*messaging.Envelope) {
		return func(e *messaging.Envelope) { e.Data = []byte(data) }
	}
	for _, tt := range []struct {
		name, code string
		change     func(*messaging.Envelope)
	}{
		{"another kind", "unknown_kind", func(e *messaging.Envelope) { e.EventType = "OrderShipped" }},
		{"another version of the schema", "unknown_kind", func(e *messaging.Envelope) { e.SchemaVersion = 2 }},
		{"data of another order", "bad_data", func(e *messaging.Envelope) { e.AggregateID = newOrder() }},
		{"no items", "bad_data", withData(`{"order_id":"` + good + `","user_id":"u1","items":[],"total":{"amount":1,"currency":"CNY","exponent":2},"created_at":"2026-10-03T02:00:00Z"}`)},
		{"no user", "bad_data", withData(`{"order_id":"` + good + `","items":[{"sku":"A","titles":{}}],"total":{"amount":1,"currency":"CNY","exponent":2},"created_at":"2026-10-03T02:00:00Z"}`)},
		{"a negative total", "bad_data", withData(`{"order_id":"` + good + `","user_id":"u1","items":[{"sku":"A","titles":{}}],"total":{"amount":-1,"currency":"CNY","exponent":2},"created_at":"2026-10-03T02:00:00Z"}`)},
		{"an amount with a fraction", "bad_data", withData(`{"order_id":"` + good + `","user_id":"u1","items":[{"sku":"A","titles":{}}],"total":{"amount":1.5,"currency":"CNY","exponent":2},"created_at":"2026-10-03T02:00:00Z"}`)},
		{"nothing", "bad_data", withData(`{}`)},
		{"a time of the year 10000 in UTC", "bad_data", withData(`{"order_id":"` + good + `","user_id":"u1","items":[{"sku":"A","titles":{}}],"total":{"amount":1,"currency":"CNY","exponent":2},"created_at":"9999-12-31T23:59:59-23:59"}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			neighbour := newOrder()
			f.deliver(t, with(t, created(t, good, "u1", "Backpack"), tt.change), created(t, neighbour, "u2", "Tent"))
			if got, want := f.found(t), []string{neighbour}; !slices.Equal(got, want) {
				t.Errorf("found %v, want only the good neighbour %v", got, want)
			}
			if got := f.count(t, `SELECT count(*) FROM message_failure WHERE consumer = $1 AND state = 'open' AND error_code = $2`, indexer, tt.code); got != 1 {
				t.Errorf("dead letters with code %s: got %d, want 1", tt.code, got)
			}
		})
	}
}

func TestUnknownFieldsAndLanguagesAreWelcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.deliver(t, with(t, created(t, order, "u1", "Backpack"), func(e *messaging.Envelope) {
		e.Data = []byte(`{"order_id":"` + order + `","user_id":"u1","gift":true,"total":{"amount":1,"currency":"CNY","exponent":2,"tax":0},` +
			`"items":[{"sku":"A","titles":{"ko":"등산 배낭"},"colour":"red","quantity":1,"unit_amount":1,"line_amount":1}],"created_at":"2026-10-03T02:00:00Z"}`)
	}))
	if got, want := f.found(t, "q", "배낭"), []string{order}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestTheIndexSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if got := f.search(t).IndexedAsOf; got != nil {
		t.Errorf("an empty index says %v", got)
	}
	occurred := func(message []byte, at time.Time) []byte {
		return with(t, message, func(e *messaging.Envelope) { e.OccurredAt = at })
	}
	f.deliver(t, occurred(created(t, newOrder(), "u1", "Backpack"), noon.Add(time.Hour)), occurred(created(t, newOrder(), "u1", "Tent"), noon))
	if got, want := f.search(t).IndexedAsOf, noon.Add(time.Hour); got == nil || !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	f.deliver(t, occurred(created(t, newOrder(), "u1", "Stove"), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
	if got := f.search(t).IndexedAsOf; got == nil || got.After(time.Now().Add(time.Minute)) {
		t.Errorf("a time in the future is believed: %v", got)
	}
}

// An index that misses a kind of its aggregate waits for ever for the version
// that came with it.
func TestTheSubscriptionHoldsEveryKindOfTheOrder(t *testing.T) {
	t.Parallel()
	var got []string
	for _, s := range Subscriptions() {
		if s.Durable != "search-indexer" {
			t.Errorf("durable: got %s", s.Durable)
		}
		for _, k := range s.Kinds {
			got = append(got, k.String())
		}
	}
	slices.Sort(got)
	if want := orderKinds(t); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("got %v, want the kinds that contracts/ has: %v", got, want)
	}
}

func requireDocument(t *testing.T, f fixture, want Document) {
	t.Helper()
	if diff := cmp.Diff(want, f.document(t)); diff != "" {
		t.Fatalf("document (-want +got):\n%s", diff)
	}
}

func at(t time.Time) *time.Time { return &t }
