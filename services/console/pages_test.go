package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/pgtest"
)

// hostile is what people put into titles when they want to break a page.
const hostile = `"><img src=x onerror=alert(1)></script><script>alert(2)</script>`

// C58: a title is text, whatever is in it.
func TestWhatOthersWroteIsShownAsText(t *testing.T) {
	t.Parallel()
	rtl := "\u202Eevil\u202C שלום " + strings.Repeat("ן", 10_000)
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"items": []any{
			map[string]any{"sku": "A-1", "titles": map[string]string{"en": hostile, "zh": rtl}, "prices": []any{map[string]any{"amount": 1990, "currency": "CNY", "exponent": 2}}},
		}})
	}))
	body := get(t, s, "/").Body.String()
	if strings.Contains(body, "<img") || strings.Contains(body, "alert(2)</script>") {
		t.Error("a title became markup")
	}
	if !strings.Contains(body, "&lt;img src=x") {
		t.Error("the title is not shown")
	}
	if got, want := strings.Count(body, `<bdi dir="auto"`), 2; got < want {
		t.Errorf("got %d isolated titles, want %d: an override would flip what stands beside it", got, want)
	}
	if !strings.Contains(body, "CNY 19.90") {
		t.Error("the price is not exact")
	}
}

func TestPagesHaveNoInlineScriptOrStyleAndAskNobodyElse(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.NotFoundHandler())
	s.public, s.pool = true, pgtest.New(t, "console")
	outside := regexp.MustCompile(`(?:src|href|action)="(?:https?:)?//`)
	inline := regexp.MustCompile(`(?i)<script(?:>|[^>]*[^c]>)[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	for _, path := range []string{"/", "/cart", "/orders", "/search?q=x", "/account", "/live", "/sign-in", "/operate/", "/nothing"} {
		w := get(t, s, path)
		if found := outside.FindString(w.Body.String()); found != "" {
			t.Errorf("%s asks somebody else: %s", path, found)
		}
		if found := inline.FindString(w.Body.String()); found != "" {
			t.Errorf("%s has %q, which its own policy forbids", path, found)
		}
		if got := w.Header().Get("Content-Security-Policy"); got != pageCSP {
			t.Errorf("%s: got policy %q", path, got)
		}
		if size := w.Body.Len(); size > 60_000 {
			t.Errorf("%s has %d bytes, at most 60000", path, size)
		}
	}
}

// C59: without a token nothing of the operators' pages is shown or done.
func TestOperatorsMustSignIn(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a service was asked") }))
	operators := 0
	for _, route := range routesOf(t, s) {
		if !strings.HasPrefix(route.pattern, "/operate/") && !slices.Contains([]string{"/live", "/live/stream", "/why"}, route.pattern) {
			continue
		}
		operators++
		w := httptest.NewRecorder()
		if s.Handler().ServeHTTP(w, httptest.NewRequest(route.method, route.path, nil)); w.Code != http.StatusUnauthorized {
			t.Errorf("%s %s: got %d, want 401", route.method, route.pattern, w.Code)
		}
	}
	if operators < 15 {
		t.Errorf("got %d pages of operators, want all", operators)
	}
}

// A form on somebody else's page must not act with the visitor's cookies.
func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a service was asked") }))
	forms := 0
	for _, route := range routesOf(t, s) {
		if route.method != http.MethodPost {
			continue
		}
		forms++
		for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://elsewhere.example"} {
			r := httptest.NewRequest(route.method, route.path, strings.NewReader(url.Values{"sku": {"A-1"}, "action": {"discard"}, "actor": {"alice"}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set(name, value)
			r.AddCookie(&http.Cookie{Name: actorCookie, Value: url.QueryEscape("alice:token")})
			w := httptest.NewRecorder()
			if s.Handler().ServeHTTP(w, r); w.Code != http.StatusForbidden {
				t.Errorf("%s with %s: got %d, want 403", route.pattern, name, w.Code)
			}
		}
	}
	if forms < 10 {
		t.Errorf("got %d forms, want all", forms)
	}
}

// A route of the pages, and a path that leads to it.
type route struct{ method, pattern, path string }

func routesOf(t *testing.T, s *Service) (all []route) {
	t.Helper()
	parameter := regexp.MustCompile(`\{[a-z]+\}`)
	err := chi.Walk(s.Handler().(chi.Routes), func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, route{method, pattern, parameter.ReplaceAllString(pattern, "points")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// C05: numbers above 2^53 keep every digit.
func TestEventsAreShownWithEveryDigit(t *testing.T) {
	t.Parallel()
	raw := json.RawMessage(`{"aggregate_version":9007199254740993,"data":{"amount":9223372036854775807}}`)
	got := indented(raw)
	for _, want := range []string{"9007199254740993", "9223372036854775807"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want it to contain %s", got, want)
		}
	}
}

func TestEveryLanguageHasTheSameTexts(t *testing.T) {
	t.Parallel()
	verbs := regexp.MustCompile(`%[.0-9]*[sdf]`)
	en, err := loadCatalogue("en")
	if err != nil {
		t.Fatal(err)
	}
	zh, err := loadCatalogue("zh")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(zh)), slices.Sorted(maps.Keys(en)); !slices.Equal(got, want) {
		t.Errorf("the catalogues have different keys")
	}
	for key, text := range en {
		if got, want := verbs.FindAllString(zh[key], -1), verbs.FindAllString(text, -1); !slices.Equal(got, want) {
			t.Errorf("%s: got places %v in zh, want %v", key, got, want)
		}
	}
}

func TestASilentServiceIsShownAsSuchAndTheRestIsShown(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "points") {
			panic(http.ErrAbortHandler)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"notifications": []any{map[string]any{"order_id": newOrder(), "state": "sent", "updated_at": time.Now()}}})
	}))
	body := get(t, s, "/account").Body.String()
	if !strings.Contains(body, "points does not answer") || !strings.Contains(body, `class="mail"`) {
		t.Error("the page does not name the silent service, or hides the mails with it")
	}
}

// How many wait and when orders will be late are two facts.
func TestAForecastStandsApartFromWhatWaits(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.NotFoundHandler())
	for _, test := range []struct {
		before, now int64
		language    string
		want        string
	}{
		{0, 50, "en", `50 wait · <small class="warn">growing: orders run late in`},
		{0, 50, "zh", `50 个等待 · <small class="warn">在增长`},
		{100, 50, "en", `50 wait · <small>drained in 10 s`},
		{0, 1, "en", `1 wait </p>`},
	} {
		flow := Flow{Waiting: test.now, Forecast: forecast(test.before, test.now, 10*time.Second)}
		html, err := s.part(test.language, "live", "pipeline", livePage{Board: &Board{}, Lanes: []lane{{Durable: auditor, Effect: "trail", Flow: flow}}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(html, test.want) {
			t.Errorf("from %d to %d: want %q in\n%s", test.before, test.now, test.want, html)
		}
	}
}

// A list under a state that does not exist would be taken for that state's.
func TestAPageOfAStateThatDoesNotExistIsMissing(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a service was asked") }))
	for _, path := range []string{"/operate/?state=foo", "/operate/desk?state=foo", "/operate/reconcile?window=foo"} {
		if w := get(t, s, path, signedInAsAlice); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, w.Code)
		}
	}
}

// C69: a browser has six connections for a server. A page in the background that
// kept one would cost the seventh page all of its own.
func TestAPageInTheBackgroundHoldsNoConnection(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("static/live.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`if (document.hidden || over) return leave();`, `document.addEventListener("visibilitychange", watch);`} {
		if !strings.Contains(string(script), want) {
			t.Errorf("the script of the live pages has no %s", want)
		}
	}
}

// C122: a browser never asks again after an answer that is no stream, such as a
// proxy's 502 while the console restarts.
func TestAPageAsksAgainAfterAnAnswerThatIsNoStream(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("static/live.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`source.addEventListener("error", failed);`, `if (source?.readyState !== EventSource.CLOSED) return;`, `setTimeout(watch, wait * (0.5 + Math.random()));`} {
		if !strings.Contains(string(script), want) {
			t.Errorf("the script of the live pages has no %s", want)
		}
	}
}
