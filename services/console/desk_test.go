package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"orderpaid/platform/opsapi"
)

// neighbours has one payment that waits, of the order service, and one mail, of
// the notify service; it keeps what it is told. All services are one server
// here, so each of them has both.
type neighbours struct {
	told  []string
	wrong int // the status with which it refuses; 0: it does not
}

func (n *neighbours) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n.wrong != 0 && r.Method == http.MethodPost {
		w.WriteHeader(n.wrong)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": n.wrong, "code": "forbidden", "detail": "a viewer may only look"})
		return
	}
	waiting := opsapi.Exception{ExceptionID: 12, State: "open", Reason: "second_payment", Says: "the order has payment pay_1", Kind: "payment.succeeded",
		Key: newOrder(), About: map[string]string{"amount": "19.90 CNY", "payment_id": "pay_2"}, Occurrences: 3, LastSeenAt: time.Now()}
	var answer any = map[string]any{"changed": 1}
	switch {
	case r.Method == http.MethodPost:
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body) // the test looks at what is left of it
		raw, _ := json.Marshal(body)
		n.told = append(n.told, r.URL.Path+" "+string(raw)+" "+r.Header.Get("Authorization"))
	case r.URL.Path == "/ops/exceptions":
		answer = map[string]any{"items": []any{waiting}}
	case r.URL.Path == "/ops/exceptions/12":
		answer = opsapi.ExceptionDetail{Exception: waiting, Masked: json.RawMessage(`{"data":{"amount":"number"}}`)}
	case r.URL.Path == "/ops/doubts":
		answer = map[string]any{"items": []any{opsapi.Doubt{ID: "ntf_1", Key: newOrder(), What: "mail", Code: "outcome_unknown", Since: time.Now()}}}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

var signedInAsAlice = &http.Cookie{Name: actorCookie, Value: url.QueryEscape("alice:token")}

func TestTheDeskShowsWhatWaitsAndADecisionGoesToTheServiceWithItsReason(t *testing.T) {
	t.Parallel()
	n := &neighbours{}
	s := newPages(t, n)
	body := get(t, s, "/operate/desk", signedInAsAlice).Body.String()
	for _, want := range []string{`href="/operate/exceptions/order/12"`, "a second payment of the order", "19.90 CNY", "announced × 3", "waits for a person",
		`action="/operate/doubts/notify/ntf_1"`, "it may have arrived"} {
		if !strings.Contains(body, want) {
			t.Errorf("the desk does not show %q", want)
		}
	}
	one := get(t, s, "/operate/exceptions/order/12", signedInAsAlice).Body.String()
	for _, want := range []string{"the order has payment pay_1", "pay_2", `name="reason" required`, "&#34;number&#34;"} {
		if !strings.Contains(one, want) {
			t.Errorf("the payment's page does not show %q", want)
		}
	}
	if got := post(t, s, "/operate/exceptions/order/12", url.Values{"reason": {"paid back"}}).Code; got != http.StatusSeeOther {
		t.Errorf("settle the payment: got %d, want 303", got)
	}
	if got := post(t, s, "/operate/doubts/notify/ntf_1", url.Values{"reason": {"in the log"}, "outcome": {"happened"}}).Code; got != http.StatusSeeOther {
		t.Errorf("settle the mail: got %d, want 303", got)
	}
	want := []string{`/ops/exceptions/settle {"ids":["12"],"reason":"paid back"} Bearer token`,
		`/ops/doubts/settle {"id":"ntf_1","outcome":"happened","reason":"in the log"} Bearer token`}
	if got := strings.Join(n.told, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestADecisionThatIsRefusedSaysSoAndKeepsTheReason(t *testing.T) {
	t.Parallel()
	s := newPages(t, &neighbours{wrong: http.StatusForbidden})
	for path, form := range map[string]url.Values{
		"/operate/exceptions/order/12": {"reason": {"paid back"}},
		"/operate/doubts/notify/ntf_1": {"reason": {"paid back"}, "outcome": {"again"}},
	} {
		w := post(t, s, path, form)
		if body := w.Body.String(); w.Code != http.StatusUnprocessableEntity || !strings.Contains(body, "a viewer may only look") || !strings.Contains(body, `value="paid back"`) {
			t.Errorf("%s: got %d, want 422 with what the service said and the reason still in the form", path, w.Code)
		}
	}
}

// A code that has no text is shown as it is, to customers, too.
func TestEveryReasonOfAPaymentExceptionHasATextInEveryLanguage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../order/domain.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`\bReason = "(\w+)"`).FindAllStringSubmatch(string(raw), -1)
	if len(codes) < 10 {
		t.Fatalf("got %d reasons of the order service", len(codes))
	}
	for _, language := range languages {
		texts, err := loadCatalogue(language)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range codes {
			if texts["reason."+code[1]] == "" {
				t.Errorf("%s has no text for the reason %s", language, code[1])
			}
		}
	}
}

func TestWhatWaitsAtAServiceThatIsSilentStillCounts(t *testing.T) {
	t.Parallel()
	s := newPages(t, &neighbours{})
	piles := s.readPiles(t.Context(), nil)
	if got, want := len(piles), 2*len(serviceNames); got != want {
		t.Fatalf("got %d piles, want %d", got, want)
	}
	s.piles.Store(&piles)
	if body := get(t, s, "/operate/", signedInAsAlice).Body.String(); !strings.Contains(body, fmt.Sprintf("To decide <b>%d</b>", 2*len(serviceNames))) {
		t.Error("the navigation does not say how many decisions wait")
	}
	for _, p := range piles {
		if p.waiting != 1 || p.what == "mail" && p.oldest.IsZero() {
			t.Errorf("got %+v, want one that waits, and since when", p)
		}
	}
	away := newPages(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	if got := away.readPiles(t.Context(), piles); !slices.Equal(got, piles) {
		t.Errorf("got %+v while nobody answers, want what was counted last", got)
	}
}

// Ids say when a mail was written, and not when it came into doubt.
func TestTheOldestOfAPileIsTheOneThatHasWaitedLongest(t *testing.T) {
	t.Parallel()
	early, late := time.Now().Add(-2*time.Hour).UTC(), time.Now().UTC()
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = opsapi.Page[opsapi.Doubt]{Items: []opsapi.Doubt{{ID: "ntf_1", Since: late}, {ID: "ntf_2", Since: early}}}
		if r.URL.Path == "/ops/exceptions" {
			answer = opsapi.Page[opsapi.Exception]{Items: []opsapi.Exception{{ExceptionID: 1, FirstSeenAt: late}, {ExceptionID: 2, FirstSeenAt: early}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	piles, err := s.pilesOf(t.Context(), "notify")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range piles {
		if !p.oldest.Equal(early) {
			t.Errorf("%s: got the oldest of %v, want of %v", p.what, p.oldest, early)
		}
	}
}

// What does not fit on the page is said, and a link leads to it.
func TestTheDeskSaysThatThereIsMoreAndLeadsThere(t *testing.T) {
	t.Parallel()
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after := r.URL.Query().Get("after")
		answer := map[string]any{"items": []any{}}
		switch {
		case r.URL.Path == "/ops/exceptions" && after == "":
			answer = map[string]any{"items": []any{opsapi.Exception{ExceptionID: 12, State: "open"}}, "next": "12"}
		case r.URL.Path == "/ops/exceptions" && after == "12":
			answer = map[string]any{"items": []any{opsapi.Exception{ExceptionID: 13, State: "open"}}}
		case r.URL.Path == "/ops/doubts" && after == "":
			answer = map[string]any{"items": []any{opsapi.Doubt{ID: "ntf_1"}}, "next": "ntf_1"}
		case r.URL.Path == "/ops/doubts" && after == "ntf_1":
			answer = map[string]any{"items": []any{opsapi.Doubt{ID: "ntf_2"}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	for _, page := range []struct {
		path        string
		shows, more []string
	}{
		{"/operate/desk", []string{"exceptions/order/12", "doubts/notify/ntf_1"},
			[]string{"?service=order&amp;exceptions=12", "?service=notify&amp;doubts=ntf_1", "And more mails of notify"}},
		{"/operate/desk?state=settled", []string{"exceptions/order/12", "the oldest first"}, []string{"?state=settled&amp;service=order&amp;exceptions=12"}},
		{"/operate/desk?service=order&exceptions=12", []string{"exceptions/order/13"}, nil},
		{"/operate/desk?service=notify&doubts=ntf_1", []string{"doubts/notify/ntf_2"}, nil},
	} {
		body := get(t, s, page.path, signedInAsAlice).Body.String()
		for _, want := range append(page.shows, page.more...) {
			if !strings.Contains(body, want) {
				t.Errorf("%s does not show %q", page.path, want)
			}
		}
		if page.more == nil && (strings.Contains(body, "And more") || strings.Count(body, `<li class="exception">`)+strings.Count(body, `<li class="doubt">`) != 1) {
			t.Errorf("%s shows more than the rest of one list", page.path)
		}
	}
}

func TestWhatWaitsForAPersonIsExported(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	s := &Service{}
	s.piles.Store(&[]pile{{service: "order", what: opsapi.EffectException, waiting: 3, oldest: time.Now().Add(-time.Hour)}})
	counted, err := s.observeDesk(metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = counted.Unregister() }() // it never fails
	if got := exported(t, reader, "shop_decisions_waiting"); len(got) != 1 || got[0].Value != 3 {
		t.Errorf("got %v, want one series of 3", got)
	}
}
