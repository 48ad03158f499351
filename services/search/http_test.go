package search

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderpaid/platform/httpserver"
)

func TestAnEmptyIndexAnswersWithAnEmptyList(t *testing.T) {
	t.Parallel()
	w := newFixture(t).get("/v1/orders/search")
	if got, want := strings.TrimSpace(w.Body.String()), `{"orders":[],"indexed_as_of":null}`; w.Code != 200 || got != want {
		t.Errorf("got %d %s, want 200 %s", w.Code, got, want)
	}
}

func TestConditionsNarrowTheListTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mine, other, cancelledOrder := newOrder(), newOrder(), newOrder()
	f.deliver(t, created(t, mine, "u1", "Backpack"), created(t, other, "u2", "Backpack"), created(t, cancelledOrder, "u1", "Tent"))
	f.deliver(t, cancelled(t, cancelledOrder, 2), paid(t, mine, 2))
	for _, tt := range []struct{ params, want []string }{
		{nil, []string{mine, other, cancelledOrder}},
		{[]string{"q", "", "user_id", "", "state", "", "cursor", "", "limit", ""}, []string{mine, other, cancelledOrder}},
		{[]string{"q", "   "}, []string{mine, other, cancelledOrder}},
		{[]string{"user_id", "u1"}, []string{mine, cancelledOrder}},
		{[]string{"user_id", "nobody"}, nil},
		{[]string{"state", "PAID"}, []string{mine}},
		{[]string{"state", "PENDING_PAYMENT"}, []string{other}},
		{[]string{"q", "backpack", "user_id", "u1"}, []string{mine}},
		{[]string{"q", "backpack", "user_id", "u1", "state", "CANCELLED"}, nil},
	} {
		got := f.found(t, tt.params...)
		slices.Sort(got)
		slices.Sort(tt.want)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.params, diff)
		}
	}
}

// Half of the orders share their time; more are placed between two pages.
// C85: no page repeats what the one before had, or leaves out what stood behind it.
func TestPagesHoldEveryOrderOnceNewestFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var docs []Document
	for i := range 25 {
		doc, err := newDocument(placed(newOrder(), "u1", "Backpack"), 1)
		if err != nil {
			t.Fatal(err)
		}
		doc.CreatedAt = noon.Add(time.Duration(i/2*(i%2)) * time.Microsecond)
		docs = append(docs, doc)
	}
	f.put(t, docs...)
	slices.SortFunc(docs, func(a, b Document) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(b.OrderID, a.OrderID)
	})
	var want, got []string
	for _, d := range docs {
		want = append(want, d.OrderID)
	}
	for _, limit := range []int{1, 7, 24, 25, 100} {
		got = nil
		for cursor, pages := "", 0; ; pages++ {
			page := f.search(t, "q", "backpack", "limit", fmt.Sprint(limit), "cursor", cursor)
			for _, d := range page.Orders {
				got = append(got, d.OrderID)
			}
			f.put(t, newer(t, docs[0]))
			if cursor = page.NextCursor; cursor == "" {
				break
			}
			if pages > 30 {
				t.Fatal("the list has no end")
			}
		}
		if diff := cmp.Diff(want, got[max(0, len(got)-25):]); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
	}
}

// newer returns a document that goes above d, and above all that newer returned
// before.
func newer(t *testing.T, d Document) Document {
	t.Helper()
	doc, err := newDocument(placed(newOrder(), "u2", "Backpack"), 1)
	if err != nil {
		t.Fatal(err)
	}
	doc.CreatedAt = d.CreatedAt.Add(time.Hour)
	return doc
}

func TestWhatIsNotUnderstoodIsRefusedAndNotSkipped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	foreign, err := httpserver.EncodeCursor("points.entries.1", "x")
	if err != nil {
		t.Fatal(err)
	}
	impossible, err := httpserver.EncodeCursor(cursorList, Position{noon, strings.Repeat("x", 5000)})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ query, code string }{
		{"q=" + strings.Repeat("a", 201), "query_too_long"},
		{"q=%00", "bad_text"},
		{"q=a%00b", "bad_text"},
		{"q=%ff", "bad_text"},
		{"q=%zz", "bad_query_string"},
		{"q=a;b", "bad_query_string"},
		{"userid=u1", "unknown_parameter"},
		{"q=a&Q=b", "unknown_parameter"},
		{"user_id=u1&user_id=u2", "repeated_parameter"},
		{"user_id=a%20b", "bad_user_id"},
		{"user_id=" + strings.Repeat("u", 65), "bad_user_id"},
		{"user_id='%20OR%201=1", "bad_user_id"},
		{"state=paid", "bad_state"},
		{"limit=0", "bad_limit"},
		{"limit=101", "bad_limit"},
		{"limit=ten", "bad_limit"},
		{"cursor=x", "bad_cursor"},
		{"cursor=%ff%00", "bad_text"},
		{"cursor=" + foreign, "bad_cursor"},
		{"cursor=" + impossible, "bad_cursor"},
		{"cursor=bnVsbA", "bad_cursor"}, // null
	} {
		w := f.get("/v1/orders/search?" + tt.query)
		var problem struct {
			Status int    `json:"status"`
			Code   string `json:"code"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatalf("%s: %v", tt.query, err)
		}
		if w.Code != 400 || problem.Status != 400 || problem.Code != tt.code || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %s, want 400 %s", tt.query, w.Code, w.Body, tt.code)
		}
	}
}

func FuzzNoCursorFails(f *testing.F) {
	good, err := httpserver.EncodeCursor(cursorList, Position{noon, "ord_1"})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{good, "", "x", "e30", "bnVsbA", good[:10], good + "AA"} {
		f.Add(seed)
	}
	for _, at := range []time.Time{{}, time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)} {
		extreme, err := httpserver.EncodeCursor(cursorList, Position{at, "ord_1"})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(extreme)
	}
	fx := newFixture(f)
	f.Fuzz(func(t *testing.T, cursor string) {
		if w := fx.get("/v1/orders/search?cursor=" + url.QueryEscape(cursor)); w.Code != 200 && w.Code != 400 {
			t.Errorf("status %d, %s", w.Code, w.Body)
		}
	})
}
