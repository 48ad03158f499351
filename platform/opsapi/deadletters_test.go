package opsapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/opsapi"
)

func TestListsAreReadInPagesToTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	b.letters(t, 25)
	c := b.client(t, viewer)
	seen := map[int64]bool{}
	filter := opsapi.FailureFilter{State: "open", Size: 10}
	for pages := 0; ; pages++ {
		page, err := c.DeadLetters(t.Context(), filter)
		if err != nil || pages > 3 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, d := range page.Items {
			seen[d.FailureID] = true
		}
		if filter.After = page.Next; page.Next == "" {
			break
		}
	}
	if len(seen) != 25 {
		t.Errorf("got %d dead letters, want 25", len(seen))
	}
	var drafts []messaging.Draft
	for i := range 12 {
		drafts = append(drafts, messaging.New(fmt.Sprintf("thing-%d", i), 1, changed{N: i}))
	}
	b.stage(t, drafts...)
	first, err := c.Outbox(t.Context(), opsapi.OutboxFilter{State: "pending", Limit: 10})
	if err != nil || len(first.Items) != 10 || first.Next == "" {
		t.Fatalf("got %d events and next %q, %v", len(first.Items), first.Next, err)
	}
	rest, err := c.Outbox(t.Context(), opsapi.OutboxFilter{State: "pending", Limit: 10, Before: first.Next})
	if err != nil || len(rest.Items) != 2 || rest.Next != "" {
		t.Errorf("got %d events and next %q, %v, want the last 2", len(rest.Items), rest.Next, err)
	}
}

// C60: a dead letter shows what an event is like and not what it says.
func TestAPayloadIsMaskedUntilSomebodyRevealsIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	b.broken.Store(true)
	for _, raw := range [][]byte{changes(t, 1)[0], []byte(`{"event_id": "jo@mail.example", "jo@mail.example": [true, 7, null, {"a b": "x"}]}`), []byte("<html>jo@mail.example")} {
		messagingtest.Deliver(t, b.consumer, raw)
	}
	for id, want := range map[string]string{"1": `"mail":"(string)"`, "2": `"(key 1)":["(boolean)","(number)",null,{"(key 1)":"(string)"}]`, "3": `"payload_bytes":21`} {
		status, body := b.ask(t, viewer, "GET", "/ops/dead-letters/"+id, "")
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("dead letter %s: got %d %s, want %s", id, status, body, want)
		}
		if strings.Contains(body, "jo@mail") {
			t.Errorf("dead letter %s shows a mail address: %s", id, body)
		}
	}
	payload, err := b.client(t, alice).Reveal(t.Context(), "1", "a customer asks")
	if err != nil || !strings.Contains(string(payload.Event), "jo@mail.example") {
		t.Errorf("got %s, %v", payload.Event, err)
	}
	raw, err := b.client(t, alice).Reveal(t.Context(), "3", "a customer asks")
	if err != nil || string(raw.Raw) != "<html>jo@mail.example" {
		t.Errorf("got %+v, %v, want the bytes as they came", raw, err)
	}
	page, err := b.client(t, viewer).Actions(t.Context(), "", 10)
	if err != nil || len(page.Items) != 2 || page.Items[1].Actor != "alice" || page.Items[1].Action != "reveal" || page.Items[1].Reason != "a customer asks" {
		t.Errorf("got %+v, %v", page.Items, err)
	}
}

// C54: it is dead, comes again and is applied; then it is retried, twice at
// once, and replayed.
func TestADeadLetterThatWasAppliedMeanwhileIsNotAppliedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	event := b.letters(t, 1)[0]
	c := b.client(t, alice)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := c.Retry(t.Context(), opsapi.FailureSelection{IDs: []string{"1"}, Reason: "mended"}); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	messagingtest.Deliver(t, b.consumer, event)
	messagingtest.RetryAll(t, b.pool, b.consumer)
	if got := b.count(t, `SELECT count(*) FROM effect`); got != 1 {
		t.Fatalf("got %d effects, want 1", got)
	}
	if _, err := c.PlanReplay(t.Context(), opsapi.ReplayRequest{Consumer: "writer", From: opsapi.Selection{Source: "failures", FailureIDs: []string{"1"}}}); !hasCode(err, "nothing_selected") {
		t.Errorf("got %v for a replay of what is settled, want nothing_selected", err)
	}
	changed, err := c.Retry(t.Context(), opsapi.FailureSelection{IDs: []string{"1"}, Reason: "once more"})
	if err != nil || changed.Changed != 0 {
		t.Errorf("got %+v, %v, want nothing to retry", changed, err)
	}
	if _, err := c.Fix(t.Context(), "1", opsapi.Fix{Event: json.RawMessage(event), Reason: "too late"}); !hasCode(err, "settled") {
		t.Errorf("got %v, want settled", err)
	}
}

// C57: the cause is only half mended.
func TestARetryThatFailsAgainReturnsWithItsHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	b.letters(t, 1)
	b.broken.Store(true)
	c := b.client(t, alice)
	for attempt := 2; attempt <= 3; attempt++ {
		if _, err := c.Retry(t.Context(), opsapi.FailureSelection{Code: "broken", Reason: "half mended"}); err != nil {
			t.Fatal(err)
		}
		messagingtest.RetryAll(t, b.pool, b.consumer)
		detail, err := c.DeadLetter(t.Context(), "1")
		if err != nil || detail.State != "open" || detail.Attempts != attempt || len(detail.Actions) != attempt-1 || detail.DueAt == nil {
			t.Fatalf("got %+v, %v, want it open after %d attempts", detail, err, attempt)
		}
		if !detail.FirstFailedAt.Before(detail.LastFailedAt) {
			t.Errorf("first failed at %v, last at %v", detail.FirstFailedAt, detail.LastFailedAt)
		}
	}
	b.broken.Store(false)
	if _, err := c.Retry(t.Context(), opsapi.FailureSelection{Code: "broken", Reason: "mended"}); err != nil {
		t.Fatal(err)
	}
	messagingtest.RetryAll(t, b.pool, b.consumer)
	if got := b.count(t, `SELECT count(*) FROM message_failure WHERE state = 'resolved' AND attempts = 4`); got != 1 {
		t.Errorf("got %d resolved after four attempts, want 1", got)
	}
}

func TestABadRequestSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, opsapi.Config{}, messaging.ConsumerConfig{})
	b.letters(t, 1)
	for request, code := range map[string]string{
		"GET /ops/dead-letters/x":                                       "bad_id",
		"GET /ops/dead-letters/99":                                      "no_dead_letter",
		"GET /ops/dead-letters?limit=100000":                            "bad_limit",
		"GET /ops/outbox?event_id=x":                                    "bad_id",
		"GET /ops/outbox?since=yesterday":                               "bad_time",
		"GET /ops/outbox/between?aggregate_id=a&after=0&before=1000000": "bad_range",
		"GET /ops/inbox":                                                "filter_missing",
		"GET /ops/evidence":                                             "bad_key",
		"GET /ops/facts":                                                "since_missing",
		"GET /ops/replays/x":                                            "bad_id",
		"GET /ops/nothing":                                              "route_not_found",
		`POST /ops/outbox/payloads {"event_ids":[]}`:                    "ids_missing",
		`POST /ops/dead-letters/retry {"reason":"all"}`:                 "filter_missing",
		`POST /ops/dead-letters/retry {"reason":"x","everything":true}`: "unknown_field",
		`POST /ops/dead-letters/1/fix {"reason":"x","event":{"a":1}}`:   "unreadable_event",
		`POST /ops/replays/plan {"consumer":"nobody","from":{}}`:        "no_consumer",
		`POST /ops/replays/plan {"consumer":"writer","from":{}}`:        "bad_selection",
		`POST /ops/replays/plan {"consumer":"writer","from":{"source":"outbox","event_ids":["01a22994-0940-7181-90b8-f2c28ae3ab98"]}}`: "owner_unknown",
		`POST /ops/replays/plan {"consumer":"writer","from":{"source":"stream","from_sequence":"1"}}`:                                  "bad_selection",
		`POST /ops/replays/plan {"consumer":"writer","from":{"source":"stream","kind":"Other.v1"}}`:                                    "bad_selection",
	} {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		status, answer := b.ask(t, bob, method, path, body)
		if status < 400 || status >= 500 || !strings.Contains(answer, `"code":"`+code+`"`) {
			t.Errorf("%s: got %d %s, want code %s", request, status, answer, code)
		}
	}
}
