package console

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/opsapi"
)

// An index is what search says of some orders when it is asked.
type index map[string]bool

func (x index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked opsapi.EventRefs
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		panic(err)
	}
	found := opsapi.Page[opsapi.Effect]{Items: []opsapi.Effect{}}
	for _, ev := range asked.Events {
		if x[ev.AggregateID] && ev.AggregateVersion == 2 {
			found.Items = append(found.Items, opsapi.Effect{What: "document", Key: ev.AggregateID, EventID: ev.EventID, State: "REFUNDED", At: time.Now()})
		}
	}
	_ = json.NewEncoder(w).Encode(found)
}

// An order that is old, and refunded by the time that search has it, is as
// indexed as any other.
func TestAnOrderIsAskedAboutUntilSearchHasIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	search := index{}
	s := newPages(t, search)
	s.pool = f.pool
	late, early := newOrder(), newOrder()
	f.hear(t, messagingtest.Envelope(t, late, 2, OrderPaid{about{late}}), messagingtest.Envelope(t, early, 2, OrderPaid{about{early}}))
	for _, step := range []struct {
		order string
		want  int64
	}{{"", 0}, {early, 1}, {"", 1}, {late, 2}, {"", 2}} {
		search[step.order] = true
		w := newIndexWatch(slog.Default())
		if s.confirmIndexed(t.Context(), w); w.after != "" {
			t.Errorf("got %q to go on after, want the start", w.after)
		}
		if got := f.tally(t); got.Indexed != step.want {
			t.Errorf("got %d indexed with %q in the index, want %d", got.Indexed, step.order, step.want)
		}
	}
}

func TestOrdersThatSearchDoesNotHaveDoNotKeepItFromTheOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	events := make([][]byte, indexPage+1)
	var last string
	for i := range events {
		last = newOrder()
		events[i] = messagingtest.Envelope(t, last, 2, OrderPaid{about{last}})
	}
	f.hear(t, events...)
	s := newPages(t, index{last: true})
	s.pool = f.pool
	w := newIndexWatch(slog.Default())
	s.confirmIndexed(t.Context(), w) // the first page, in vain
	s.confirmIndexed(t.Context(), w)
	if got := f.tally(t); got.Indexed != 1 {
		t.Errorf("got %d indexed, want the last of %d", got.Indexed, len(events))
	}
}

// A service in trouble is not asked again and again by everybody who waits for
// it, and whoever looks into the log learns once that it does not answer.
func TestWhileSearchDoesNotAnswerTheBoardAsksLessAndGoesOnFromTheSamePlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.hear(t, messagingtest.Envelope(t, order, 2, OrderPaid{about{order}}))
	var away atomic.Bool
	away.Store(true)
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		index{order: true}.ServeHTTP(w, r)
	}))
	s.pool = f.pool
	var logged strings.Builder
	w := newIndexWatch(slog.New(slog.NewTextHandler(&logged, nil)))
	w.after = "ord_0"
	for range 10 {
		s.confirmIndexed(t.Context(), w)
	}
	if w.after != "ord_0" || w.pause != indexPauseMax {
		t.Errorf("got a pause of %v and to go on after %q, want %v and ord_0", w.pause, w.after, indexPauseMax)
	}
	away.Store(false)
	s.confirmIndexed(t.Context(), w)
	if w.pause != indexPause {
		t.Errorf("got a pause of %v after an answer, want %v", w.pause, indexPause)
	}
	if got := logged.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "cannot be confirmed") || !strings.Contains(got, "confirmed again") {
		t.Errorf("got the log\n%swant the first failure and the recovery", got)
	}
}

// What search cannot confirm is asked about one page after the other, and after
// each round half as often.
func TestWhatSearchDoesNotHaveIsAskedAboutEverMoreSeldom(t *testing.T) {
	t.Parallel()
	full, rest := make([]opsapi.EventRef, indexPage), make([]opsapi.EventRef, 1)
	full[indexPage-1].AggregateID = "ord_5"
	w := newIndexWatch(slog.Default())
	for _, step := range []struct {
		what    string
		waiting []opsapi.EventRef
		found   int
		after   string
		pause   time.Duration
	}{
		{"a first page in vain", full, 0, "ord_5", time.Second},
		{"the rest in vain: a round", rest, 0, "", 2 * time.Second},
		{"a second round, of which something is found", full, 1, "ord_5", time.Second},
		{"and its end, in vain", rest, 0, "", time.Second},
		{"a third round, in vain", rest, 0, "", 2 * time.Second},
		{"a fourth", rest, 0, "", 4 * time.Second},
		{"nothing waits", nil, 0, "", time.Second},
	} {
		w.note(step.waiting, step.found, nil)
		if w.after != step.after || w.pause != step.pause {
			t.Errorf("%s: got a pause of %v and after %q, want %v and %q", step.what, w.pause, w.after, step.pause, step.after)
		}
	}
}

// One order that search will never have must not make those that are paid now
// late on the board.
func TestANewPaymentEndsALongPauseUnlessSearchDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newIndexWatch(slog.New(slog.DiscardHandler))
	for _, step := range []struct {
		what  string
		wrong bool
		paid  int64
		news  bool
		pause time.Duration
	}{
		{"a payment", false, 1, true, indexPause},
		{"no other", false, 1, false, indexPauseMax},
		{"one while search is away", true, 2, false, indexPauseMax},
		{"the next when it is back", false, 3, true, indexPause},
	} {
		w.wrong, w.pause = step.wrong, indexPauseMax
		if got := w.heard(step.paid); got != step.news || w.pause != step.pause {
			t.Errorf("%s: got %v and a pause of %v, want %v and %v", step.what, got, w.pause, step.news, step.pause)
		}
	}
}

func TestADatabaseThatIsAwayDoesNotMoveTheQuestionsBackToTheStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := newPages(t, index{})
	s.pool = f.pool
	f.pool.Close()
	w := newIndexWatch(slog.New(slog.DiscardHandler))
	w.after = "ord_0"
	if s.confirmIndexed(t.Context(), w); w.after != "ord_0" || !w.wrong {
		t.Errorf("got to go on after %q, failed %v; want after ord_0, and that it has failed", w.after, w.wrong)
	}
}
