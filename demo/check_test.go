package demo

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// paidOrder is an order of one user that was paid, and everything that the
// databases hold about it when all went well.
func paidOrder() (*checker, *found) {
	x := expect([]Entry{placed(1), answered(OpPay, "a", Accepted, 1990, "")})
	return &checker{expected: x, ids: []string{"ord_1"}}, &found{
		orders:     map[string]orderRow{"ord_1": {"PAID", 2, 19, 0}},
		facts:      map[string]map[string]int{"ord_1": {"OrderCreated.v1": 1, "OrderPaid.v1": 1}},
		exceptions: map[string]int{}, undone: map[string]int{},
		entries:   map[string]entryRow{"ord_1": {1, 0, 19}},
		tasks:     map[string]taskRow{"ord_1": {1, 1}},
		documents: map[string]documentRow{"ord_1": {"PAID", 2, 0}},
	}
}

// differing returns the checks that fail.
func differing(results []Result) (checks []string) {
	for _, r := range results {
		if !r.OK {
			checks = append(checks, r.Check)
		}
	}
	return checks
}

func TestEachLineOfTheTableCanFail(t *testing.T) {
	t.Parallel()
	for check, spoil := range map[string]func(f *found){
		"": func(*found) {},
		"order: orders in the state of the last answer":          func(f *found) { f.orders["ord_1"] = orderRow{"PAID", 3, 19, 0} },
		"order: payments kept that do not fit":                   func(f *found) { f.exceptions["ord_1"] = 1 },
		"order: OrderPaid.v1 in the outbox":                      func(f *found) { f.facts["ord_1"]["OrderPaid.v1"] = 2 },
		"order: OrderCancelled.v1 in the outbox":                 func(f *found) { f.facts["ord_1"]["OrderCancelled.v1"] = 1 },
		"order: follow-ups not done":                             func(f *found) { f.undone["ord_1"] = 1 },
		"points: awards":                                         func(f *found) { f.entries["ord_1"] = entryRow{2, 0, 19} },
		"points: reversals":                                      func(f *found) { f.entries["ord_1"] = entryRow{1, 1, 19} },
		"points: sum of each of 1 users":                         func(f *found) { f.entries["ord_1"] = entryRow{1, 0, 20} },
		"points: balances that are not the sum of their entries": func(f *found) { f.badBalances = 1 },
		"notify: mails sent, by its own word":                    func(f *found) { delete(f.tasks, "ord_1") },
		"search: documents in the right state":                   func(f *found) { f.documents["ord_1"] = documentRow{"PENDING_PAYMENT", 1, 0} },
		"outboxes: events that wait for too long or are held":    func(f *found) { f.unpublished = 1 },
		"all databases: rows that no order accounts for":         func(f *found) { f.strays = []string{"points ord_2"} },
		"consumers: dead letters":                                func(f *found) { f.failures = 1 },
	} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			c, f := paidOrder()
			spoil(f)
			var want []string
			if check != "" {
				want = []string{check}
			}
			if got := differing(c.databases(f)); !slices.Equal(got, want) {
				t.Errorf("these lines differ: %q, want %q", got, want)
			}
		})
	}
}

func TestTwoErrorsDoNotCancelOut(t *testing.T) {
	t.Parallel()
	sums := newTally("sums")
	sums.compare(10, 11, "u-0001")
	sums.compare(10, 9, "u-0002")
	if r := sums.result(); r.OK || r.Expected != r.Found {
		t.Errorf("got %+v, want equal sums that differ all the same", r)
	}
}

func TestAMailTooManyOrTooFewDiffers(t *testing.T) {
	t.Parallel()
	c, _ := paidOrder()
	for what, mails := range map[string][]string{
		"none": nil, "two copies": {"<1>", "<1>"}, "two mails": {"<1>", "<2>"},
	} {
		if got := differing(c.mails(map[string][]string{"ord_1": mails})); len(got) != 1 {
			t.Errorf("%s: these lines differ: %q, want one", what, got)
		}
	}
	if got := differing(c.mails(map[string][]string{"ord_1": {"<1>"}})); len(got) != 0 {
		t.Errorf("one mail differs: %q", got)
	}
}

func TestWhatNoPaidOrderAccountsForIsAStray(t *testing.T) {
	t.Parallel()
	got := unaccounted(map[string][]string{"points": {"paid", "open", "nobody"}, "notify": {"paid", "open"}, "search": {"paid", "open", "ghost"}},
		map[string]bool{"paid": true, "open": false})
	slices.Sort(got)
	if want := []string{"notify open", "points nobody", "points open", "search ghost"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Evidence must name the place where the event is. What the stream dropped for
// its age, in a folder of an earlier week, is no loss; the same event younger is.
func TestEvidenceIsComparedWithTheStreamAndAgeIsNoLoss(t *testing.T) {
	t.Parallel()
	now := time.Now()
	there, old, gone, moved, bare := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	audit := newAudit()
	audit.first, audit.maxAge = 100, 7*24*time.Hour
	audit.events = map[uuid.UUID][]uint64{there: {99, 100}, moved: {101}, bare: {102}}
	lost, unproven := missing([]fact{
		{"order", there, 100, now}, {"order", old, 7, now.Add(-8 * 24 * time.Hour)}, {"order", gone, 8, now.Add(-time.Hour)},
		{"order", moved, 103, now}, {"points", bare, 0, now},
	}, audit, now)
	if want := []string{"order " + gone.String()}; !slices.Equal(lost, want) {
		t.Errorf("got %q lost, want %q", lost, want)
	}
	if len(unproven) != 2 || !strings.Contains(unproven[0], moved.String()) || !strings.Contains(unproven[1], bare.String()) {
		t.Errorf("got %q contradicted, want what is elsewhere and what has no evidence", unproven)
	}
}

func TestTheAuditCountsByFirstAppearance(t *testing.T) {
	t.Parallel()
	first, second, third := uuid.New(), uuid.New(), uuid.New()
	audit := newAudit()
	for _, e := range []struct {
		id      uuid.UUID
		version int
	}{{first, 1}, {third, 3}, {first, 1}, {second, 2}} {
		raw, err := json.Marshal(map[string]any{"event_id": e.id, "event_type": "OrderPaid", "schema_version": 1,
			"aggregate_type": "order", "aggregate_id": "ord_1", "aggregate_version": e.version, "data": map[string]any{"order_id": "ord_1"}})
		if err != nil {
			t.Fatal(err)
		}
		audit.add(uint64(audit.Messages+1), raw)
	}
	audit.add(5, []byte("<html>"))
	if audit.Messages != 5 || audit.Copies != 1 || audit.Unreadable != 1 || audit.Distinct() != 3 {
		t.Errorf("%d messages, %d copies, %d unreadable, %d events; want 5, 1, 1, 3", audit.Messages, audit.Copies, audit.Unreadable, audit.Distinct())
	}
	if len(audit.Inversions) != 1 || !strings.Contains(audit.Inversions[0], "version 2 appears after 3") {
		t.Errorf("inversions %q, want the one of version 2", audit.Inversions)
	}
	if got := audit.ByOrder["ord_1"]["OrderPaid.v1"]; got != 3 {
		t.Errorf("%d events OrderPaid.v1 of the order, want 3", got)
	}
}

func TestWithoutATerminalTheLiveLineComesNowAndThen(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &screen{out: &out}
	for range 100 {
		s.show("busy")
	}
	s.printf("a line that stays")
	s.printed = time.Now().Add(-plainInterval)
	s.show("still busy")
	if got, want := out.String(), "busy\na line that stays\nstill busy\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOnATerminalTheLiveLineStaysBelow(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &screen{out: &out, terminal: true}
	s.show("busy")
	s.printf("a line that stays")
	s.keep()
	if got, want := out.String(), clearLine+"busy"+clearLine+"a line that stays\nbusy\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The shop ends with its check: a hint that takes it for running leads nowhere.
func TestADifferenceSaysHowToLookFurther(t *testing.T) {
	t.Parallel()
	text := (&Report{Results: []Result{{Check: "points: awards", Expected: 1}}}).String()
	for _, want := range []string{"start the shop again (scripts/demo", ".orderpaid/bin/shopctl why ID", ".orderpaid/bin/shopctl outbox list",
		".orderpaid/bin/shopctl dead-letters list"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
	if strings.Count(text, "shopctl") != strings.Count(text, ".orderpaid/bin/shopctl") {
		t.Errorf("got %q, want every shopctl with its path", text)
	}
}
