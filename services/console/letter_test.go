package console

import (
	"bytes"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"orderpaid/platform/messaging"
)

// C05: a number above 2^53 is another one for a browser's script, or for
// whoever reads it into a float. On its way from a dead letter to the page,
// from there by a person's hands into the form, and back to the service, every
// digit stays.
func TestAnEventIsShownCopiedAndSentBackWithEveryDigit(t *testing.T) {
	t.Parallel()
	const big = `{"event_id":"01a22994-0940-7181-90b8-f2c28ae3ab98","aggregate_version":9007199254740993,"data":{"user_id":9007199254740993,"amount":9007199254740993,"rate":1.10}}`
	sent := make(chan string, 1)
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/reveal"):
			_, _ = io.WriteString(w, `{"event":`+big+`}`)
		case strings.HasSuffix(r.URL.Path, "/fix"):
			var fix struct {
				Event json.RawMessage `json:"event"`
			}
			if err := json.NewDecoder(r.Body).Decode(&fix); err != nil {
				t.Error(err)
			}
			sent <- string(fix.Event)
			_, _ = io.WriteString(w, `{"event_id":"01a22994-0940-7181-90b8-f2c28ae3ab99"}`)
		default:
			_, _ = io.WriteString(w, `{"failure_id":"9007199254740993","consumer":"points-awarder","state":"open","aggregate_version":"9007199254740993","payload_masked":`+big+`}`)
		}
	}))
	const path = "/operate/dead-letters/points/9007199254740993"
	shown := get(t, s, path, &http.Cookie{Name: actorCookie, Value: url.QueryEscape("alice:token")}).Body.String()
	if got, want := strings.Count(shown, "9007199254740993"), 5; got < want {
		t.Errorf("got the number %d times on the page, want %d at least", got, want)
	}
	revealed := post(t, s, path, url.Values{"action": {"reveal"}, "reason": {"to look"}}).Body.String()
	area := regexp.MustCompile(`(?s)<textarea[^>]*>(.*?)</textarea>`).FindStringSubmatch(revealed)
	if area == nil {
		t.Fatalf("there is no event on the page:\n%s", revealed)
	}
	post(t, s, path, url.Values{"action": {"fix"}, "reason": {"as it was"}, "event": {html.UnescapeString(area[1])}})
	if got := compact(t, <-sent); got != big {
		t.Errorf("got %s, want %s", got, big)
	}
}

func post(t *testing.T, s *Service, path string, form url.Values, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range append(cookies, &http.Cookie{Name: actorCookie, Value: url.QueryEscape("alice:token")}) {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// compact takes out the blanks between the parts of JSON and nothing else.
func compact(t *testing.T, raw string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(raw)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// C127: who has more than a page of dead letters must not take the first for all.
func TestThePageOfDeadLettersSaysThatThereAreMoreAndLeadsThere(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"items": []any{messaging.DeadLetter{FailureID: 1}}, "next": "1"}
		if r.URL.Query().Get("after") == "1" {
			answer = map[string]any{"items": []any{messaging.DeadLetter{FailureID: 2}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	body := get(t, s, "/operate/", signedInAsAlice).Body.String()
	const more = "?state=unresolved&amp;service=points&amp;after=1"
	if !strings.Contains(body, "/operate/dead-letters/points/1") || !strings.Contains(body, more) || !strings.Contains(body, "And more of points") {
		t.Errorf("the page does not say that there are more, or not where:\n%s", body)
	}
	body = get(t, s, "/operate/"+strings.ReplaceAll(more, "&amp;", "&"), signedInAsAlice).Body.String()
	if !strings.Contains(body, "/operate/dead-letters/points/2") || strings.Contains(body, "And more") || strings.Count(body, `href="/operate/dead-letters/`) != 1 {
		t.Errorf("the next page is not the rest of the list of points:\n%s", body)
	}
}
