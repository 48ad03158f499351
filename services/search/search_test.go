package search

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"
)

// C10: what people buy and how they look for it: words in the middle of a Chinese
// or Japanese sentence, emoji, right-to-left text with digits, full width,
// and both ways to write é. C78: signs alone find nothing. C110: accents do not
// count, in what is looked for as in what is found.
func TestWhatCanBeReadCanBeFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	titles := map[string]string{
		"backpack": "超轻量登山背包 38升",
		"japanese": "日本語のテスト",
		"gift":     "🎁礼物盒",
		"arabic":   "حقيبة ظهر للتنزه ٣٨ لتر",
		"hebrew":   "תרמיל הליכה 38 ליטר",
		"shirt":    "Ｔシャツ",
		"coffee":   "Cafe\u0301 Cre\u0300me",
		"flipped":  "safe\u202Etxt.exe\u202C bottle",
		"korean":   "초경량 등산배낭",
		"thai":     "กระเป๋าเป้เดินป่า",
		"case":     "手机 保护壳 透明机壳",
		"size":     "Ultralight Backpack 38.5L, STRASSE",
	}
	orders := map[string]string{}
	for name, title := range titles {
		order := newOrder()
		orders[order] = name
		f.deliver(t, created(t, order, "u1", title))
	}
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"背包", []string{"backpack"}},
		{"登山背包", []string{"backpack"}},
		{"包", []string{"backpack"}},
		{"超", []string{"backpack"}},
		{"超轻量登山背包", []string{"backpack"}},
		{"背包 轻量", []string{"backpack"}},
		{"包背", nil},
		{"テスト", []string{"japanese"}},
		{"ﾃｽﾄ", []string{"japanese"}},
		{"語", []string{"japanese"}},
		{"日本語のテスト", []string{"japanese"}},
		{"🎁", []string{"gift"}},
		{"礼物", []string{"gift"}},
		{"🎁礼物盒", []string{"gift"}},
		{"盒", []string{"gift"}},
		{"حقيبة", []string{"arabic"}},
		{"حَقِيبَة", []string{"arabic"}},
		{"\u202Bحقيبة\u202C ٣٨", []string{"arabic"}},
		{"حقيبة 38", []string{"arabic"}},
		{"תרמיל", []string{"hebrew"}},
		{"38 ליטר", []string{"hebrew"}},
		{"38", []string{"arabic", "backpack", "hebrew", "size"}},
		{"T", []string{"shirt"}},
		{"ｔ", []string{"shirt"}},
		{"シャツ", []string{"shirt"}},
		{"tシャツ", []string{"shirt"}},
		{"café", []string{"coffee"}},
		{"cafe creme", []string{"coffee"}},
		{"bäckpäck", []string{"size"}},
		{norm.NFD.String("CAFÉ crème"), []string{"coffee"}},
		{"bottle", []string{"flipped"}},
		{"safetxt.exe", []string{"flipped"}},
		{"배낭", []string{"korean"}},
		{"등산", []string{"korean"}},
		{"เป้", []string{"thai"}},
		{"เดินป่า", []string{"thai"}},
		{"机壳", []string{"case"}},
		{"手机壳", nil}, // 手机 and 机壳 are both there, but not as one word
		{"straße", []string{"size"}},
		{"38.5l", []string{"size"}},
		{"backpack ultralight", []string{"size"}},
		{"backpack 背包", nil},
		{"!!!", nil},
		{"\u202E", nil},
	} {
		var got []string
		for _, order := range f.found(t, "q", tt.query) {
			got = append(got, orders[order])
		}
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.query, diff)
		}
	}
	for _, d := range f.search(t, "limit", "50").Orders {
		if got, want := d.Items[0].Titles["en"], titles[orders[d.OrderID]]; got != want {
			t.Errorf("the title is shown as %q, want it unchanged: %q", got, want)
		}
	}
}

func TestAnOrderIsFoundByItsIDItsSKUsAndEveryLanguage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	if _, err := newDocument(placed(order, "u1"), 1); err == nil {
		t.Fatal("an order without items makes a document")
	}
	e := placed(order, "u1", "unused")
	e.Items = []Item{
		{SKU: "OUT-PACK-38UL", Titles: map[string]string{"en": "Hiking Backpack", "zh": "登山背包", "ja": "登山バックパック"}, Quantity: 1},
		{SKU: "TEA-100", Titles: map[string]string{"en": "Green Tea", "zh": "绿茶", "ja": "緑茶"}, Quantity: 1},
	}
	doc, err := newDocument(e, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, doc)
	for _, q := range []string{order, "out-pack-38ul", "tea-100", "hiking", "登山背包", "バックパック", "green tea", "绿茶", "緑茶", "tea 背包"} {
		if got := f.found(t, "q", q); len(got) != 1 {
			t.Errorf("%q: found %v", q, got)
		}
	}
	if got := f.found(t, "q", "backpack-登山"); got != nil { // neighbours, but of two titles
		t.Errorf("a phrase spans two titles: %v", got)
	}
}

// C08: a text that PostgreSQL would refuse is indexed as far as the bounds go, once,
// and found by what comes first.
func TestTextsOfMegabytesAreIndexedAndFoundByTheirTitle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var unique strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&unique, "w%06d ", i)
	}
	base64 := strings.Repeat("QmFja3BhY2s0dHJ1ZQABCDefGHijKLmnOPqrSTuvWXyz0123456789+/", 900<<10/57)
	for name, long := range map[string]string{"unique": unique.String()[:2<<20], "base64": base64, "quotes": strings.Repeat(`'\''\`, 200_000)} {
		order := newOrder()
		e := placed(order, name, "登山背包 "+name, long, "the last of its titles")
		doc, err := newDocument(e, 1)
		if err != nil {
			t.Fatal(err)
		}
		f.put(t, doc)
		for _, q := range []string{"登山背包 " + name, "last titles", order} {
			if got := f.count(t, `SELECT count(*) FROM order_document WHERE user_id = $1 AND lexemes @@ $2::tsquery`, name, queryOf(q)); got != 1 {
				t.Errorf("%s: %q finds %d orders, want 1", name, q, got)
			}
		}
	}
}

func TestThePlanOfASearchUsesTheIndexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(t, 10_000)
	for _, tt := range []struct {
		name   string
		query  Query
		index  string
		orders int // how many the query finds
	}{
		{"a rare word", Query{Text: "背包7"}, "lexemes_idx", 1},
		{"a rare phrase", Query{Text: "山背包9999"}, "lexemes_idx", 1},
		{"one rare character", Query{Text: "鲸"}, "lexemes_idx", 1},
		{"a word that is not there", Query{Text: "snowboard"}, "lexemes_idx", 0},
		{"everything", Query{}, "created_at_order_id_idx", 10_000},
		{"a common word", Query{Text: "登山"}, "created_at_order_id_idx", 10_000},
		{"one customer", Query{UserID: "u3"}, "user_id_created_at_order_id_idx", 10},
		{"a rare word of one customer", Query{UserID: "u3", Text: "背包3"}, "_idx", 1},
		{"a rare state", Query{State: StateCancelled}, "state_created_at_order_id_idx", 100},
	} {
		plan := f.explain(t, tt.query)
		if !strings.Contains(plan, tt.index) || strings.Contains(plan, "Seq Scan on order_document_0") {
			t.Errorf("%s: the plan has no %s, or reads the whole table:\n%s", tt.name, tt.index, plan)
		}
		if strings.Contains(plan, "order_document_1") && !strings.Contains(plan, "never executed") {
			t.Errorf("%s: the slot that is not live is read:\n%s", tt.name, plan)
		}
		tt.query.Limit = 100
		page, err := f.service.Search(t.Context(), tt.query)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(page.Orders), min(tt.orders, 100); got != want {
			t.Errorf("%s: found %d, want %d", tt.name, got, want)
		}
	}
}

// fill stores n orders of 1,000 customers with titles of their own.
func (f fixture) fill(t *testing.T, n int) {
	t.Helper()
	docs := make([]Document, n)
	for i := range docs {
		title := fmt.Sprintf("登山背包%d number%d", i, i)
		if i == n/2 {
			title += " 鲸"
		}
		doc, err := newDocument(placed(fmt.Sprintf("ord_%032x", i), fmt.Sprintf("u%d", i%1000), title), 1)
		if err != nil {
			t.Fatal(err)
		}
		doc.CreatedAt = noon.Add(-time.Duration(i) * time.Minute)
		if i%100 == 0 {
			doc.State = StateCancelled
		}
		docs[i] = doc
	}
	f.put(t, docs...)
	if _, err := f.pool.Exec(t.Context(), "VACUUM ANALYZE order_document"); err != nil {
		t.Fatal(err)
	}
}

// Any text at all gets an answer: found, not found, or refused as bad input.
func FuzzNoQueryFails(f *testing.F) {
	for _, seed := range []string{"", " ", "背包", "a", "'", `\`, `'\'`, "a:*", "!a & (b | c)", "<->", "\x00", "\xff", "🎁", "ﷺ", strings.Repeat("ﷺ", 200),
		strings.Repeat("包", 200), "\u202E", "e\u0301", strings.Repeat("\u0301", 100), "👩🏽‍🚀", "\ufffd", "\ufeff", "İ", "ẞ", "100%_", "$1", "@q", "ord_0"} {
		f.Add(seed, seed)
	}
	fx := newFixture(f)
	f.Fuzz(func(t *testing.T, title, q string) {
		w := fx.get(query("q", q))
		if w.Code != 200 && w.Code != 400 {
			t.Errorf("q %q: status %d, %s", q, w.Code, w.Body)
		}
		if !utf8.ValidString(title) || strings.ContainsRune(title, 0) {
			return // such events never reach a handler
		}
		order := newOrder()
		doc, err := newDocument(placed(order, "u1", title), 1)
		if err != nil {
			t.Fatal(err)
		}
		fx.put(t, doc)
		if utf8.RuneCountInString(title) > 100 || queryOf(title) == "" {
			return
		}
		if got := fx.found(t, "q", title, "limit", "1"); len(got) != 1 {
			t.Errorf("an order with the title %q is not found by it", title)
		}
	})
}
