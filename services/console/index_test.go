package console

import (
	"encoding/json"
	"net/http"
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
		if after := s.confirmIndexed(t.Context(), ""); after != "" {
			t.Errorf("got %q to go on after, want the start", after)
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
	s.confirmIndexed(t.Context(), "")
	if got := f.tally(t); got.Indexed != 1 {
		t.Errorf("got %d indexed, want the last of %d", got.Indexed, len(events))
	}
}

func TestWhileSearchDoesNotAnswerTheBoardGoesOnFromTheSamePlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.hear(t, messagingtest.Envelope(t, order, 2, OrderPaid{about{order}}))
	s := newPages(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	s.pool = f.pool
	if after := s.confirmIndexed(t.Context(), "ord_0"); after != "ord_0" {
		t.Errorf("got %q, want to go on after ord_0", after)
	}
}
