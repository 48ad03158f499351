package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

func TestAForecastSaysWhenABacklogIsGoneOrTooLong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		before, now int64
		want        Forecast
	}{
		{"it shrinks by ten a second", 200, 100, Forecast{Backlog: 100, Growth: -10, Drained: 10 * time.Second}},
		{"it grows by ten a second", 0, 100, Forecast{Backlog: 100, Growth: 10, Breach: 990 * time.Second}},
		{"it stays", 100, 100, Forecast{Backlog: 100}},
		{"one event more is no trend", 0, 1, Forecast{Backlog: 1, Growth: 0.1}},
		{"one event less is none either", 2, 1, Forecast{Backlog: 1, Growth: -0.1}},
		{"it is gone", 100, 0, Forecast{Growth: -10}},
	} {
		if got := forecast(test.before, test.now, 10*time.Second); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestMoneyIsWrittenExactly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		money Money
		want  string
	}{
		{Money{Amount: 1990, Currency: "CNY", Exponent: 2}, "CNY 19.90"},
		{Money{Amount: 1050, Currency: "JPY"}, "JPY 1050"},
		{Money{Amount: 1234, Currency: "BHD", Exponent: 3}, "BHD 1.234"},
		{Money{Amount: -5, Currency: "USD", Exponent: 2}, "USD −0.05"},
		{Money{Amount: 9007199254740993, Currency: "USD", Exponent: 2}, "USD 90071992547409.93"},
	} {
		if got := test.money.String(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

func TestACartHoldsOnlyWhatCanBe(t *testing.T) {
	t.Parallel()
	lines := setQuantity(nil, "A", 500)
	if got := quantityOf(lines, "A"); got != maxQuantity {
		t.Errorf("got %d, want %d", got, maxQuantity)
	}
	if lines = setQuantity(lines, "A", 0); len(lines) != 0 {
		t.Errorf("got %v, want an empty cart", lines)
	}
}

// C73: a browser drops a cookie of more than 4096 bytes without a word.
func TestAFullCartFitsIntoACookie(t *testing.T) {
	t.Parallel()
	var lines []cartLine
	for i := range 2 * maxLines {
		lines = setQuantity(lines, fmt.Sprintf("%064d", i), maxQuantity)
	}
	w := httptest.NewRecorder()
	setCart(w, httptest.NewRequest(http.MethodPost, "/cart", nil), lines)
	if got := len(w.Header().Get("Set-Cookie")); len(lines) != maxLines || got > 4096 {
		t.Errorf("got a cookie of %d bytes for %d products, want at most 4096 for %d", got, len(lines), maxLines)
	}
	r := httptest.NewRequest(http.MethodGet, "/cart", nil)
	for _, c := range w.Result().Cookies() {
		r.AddCookie(c)
	}
	if got := cartOf(r); !slices.Equal(got, lines) {
		t.Errorf("got %v back, want %v", got, lines)
	}
}

func TestAFormNeverLeadsAway(t *testing.T) {
	t.Parallel()
	for _, given := range []string{"//evil.example", "https://evil.example", `/\evil.example`, "/a\r\nb", ""} {
		if got := localPath(given); got != "/" {
			t.Errorf("%q leads to %q", given, got)
		}
	}
	if got, want := localPath("/orders?x=1"), "/orders?x=1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// C126: a browser names its languages in any order, with weights, and first of
// all one that there is not.
func TestThePageIsInTheLanguageThatTheVisitorLikesBestOfThoseThereAre(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"":                               "en",
		"zh-CN,zh;q=0.9,en;q=0.8":        "zh",
		"zh-TW":                          "zh",
		"en-GB,en;q=0.9,zh;q=0.8":        "en",
		"fr-CH, fr;q=0.9, zh;q=0.8":      "zh",
		"ja,zh-CN;q=0.9,en;q=0.8":        "zh",
		"en;q=0.5, zh":                   "zh",
		"zh;q=0, en":                     "en",
		"fr":                             "en",
		"*":                              "en",
		"no language at all, and no end": "en",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Language", header)
		if got := languageOf(r); got != want {
			t.Errorf("%q: got %s, want %s", header, got, want)
		}
	}
}
