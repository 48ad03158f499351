package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
)

// The event that every case below is about, and where the stream has it.
var (
	paidEvent    = uuid.MustParse("01a22994-0940-7181-90b8-f2c28ae3ab98")
	awardedEvent = uuid.MustParse("01a22994-0940-7181-90b8-f2c28ae3ab99")
)

const paidAt, awardedAt = 10, 20

// staged is an event with its place in an outbox.
func staged(id uuid.UUID, kind, state string, seq int64) messaging.StagedEvent {
	return messaging.StagedEvent{EventID: id, Kind: kind, State: state, StreamSeq: &seq}
}

// A neighbourhood is what the services would say about an order.
type neighbourhood struct {
	said   map[string]opsapi.Evidence
	silent map[string]bool
	floor  uint64 // up to which the stream's consumers have acknowledged
	stream bool   // the broker answers
}

// credited is the order service's and the points service's word when all is well.
func credited() neighbourhood {
	return neighbourhood{floor: 30, stream: true, silent: map[string]bool{}, said: map[string]opsapi.Evidence{
		"order": {Staged: []messaging.StagedEvent{staged(paidEvent, "OrderPaid.v1", "published", paidAt)}},
		"points": {
			Seen:    []messaging.SeenEvent{{Consumer: "points-awarder", EventID: paidEvent, Result: "applied"}},
			Effects: []opsapi.Effect{{What: "points_entry"}},
			Staged:  []messaging.StagedEvent{staged(awardedEvent, "PointsAwarded.v1", "published", awardedAt)},
		},
	}}
}

// An order that lacks its points is only lost when nobody has the event any
// more. Everything else has an owner, who is named, and what cannot be known
// is not guessed.
func TestAnOrderIsOnlyLostWhenNobodyHasItsEvent(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		change func(n *neighbourhood)
		want   string
	}{
		{"PointsAwarded never came to the console, which has passed its place", func(*neighbourhood) {}, "lost"},
		{"its own trail is late", func(n *neighbourhood) { n.floor = awardedAt - 1 }, "console"},
		{"still in the outbox", func(n *neighbourhood) {
			n.said["order"] = opsapi.Evidence{Staged: []messaging.StagedEvent{staged(paidEvent, "OrderPaid.v1", "pending", 0)}}
		}, "outbox"},
		{"never staged", func(n *neighbourhood) { n.said["order"] = opsapi.Evidence{} }, "lost"},
		{"the broker has it and points has not got to it", func(n *neighbourhood) { n.said["points"] = opsapi.Evidence{}; n.floor = paidAt - 1 }, "broker"},
		{"points has acknowledged it and knows nothing", func(n *neighbourhood) { n.said["points"] = opsapi.Evidence{} }, "lost"},
		{"points says applied and there is nothing", func(n *neighbourhood) {
			n.said["points"] = opsapi.Evidence{Seen: n.said["points"].Seen}
		}, "lost"},
		{"a dead letter of points", func(n *neighbourhood) {
			n.said["points"] = opsapi.Evidence{Failures: []messaging.DeadLetter{{EventID: &paidEvent, State: "open"}}}
		}, "points"},
		{"a person has discarded it", func(n *neighbourhood) {
			n.said["points"] = opsapi.Evidence{Seen: []messaging.SeenEvent{{Consumer: "points-awarder", EventID: paidEvent, Result: "discarded"}}}
		}, "person"},
		{"PointsAwarded waits in the outbox of points", func(n *neighbourhood) {
			said := n.said["points"]
			said.Staged = []messaging.StagedEvent{staged(awardedEvent, "PointsAwarded.v1", "pending", 0)}
			n.said["points"] = said
		}, "points"},
		{"points does not answer", func(n *neighbourhood) { n.silent["points"] = true }, "unknown"},
		{"the order service does not answer", func(n *neighbourhood) { n.silent["order"] = true }, "unknown"},
		{"the broker does not answer", func(n *neighbourhood) { n.stream = false }, "unknown"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := credited()
			c.change(&n)
			got := n.service(t).locate(t.Context(), n.board(), Overdue{OrderID: newOrder(), Uncredited: true})
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func (n neighbourhood) service(t *testing.T) *Service {
	t.Helper()
	peers := map[string]string{}
	for _, name := range serviceNames {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n.silent[name] {
				panic(http.ErrAbortHandler)
			}
			_ = json.NewEncoder(w).Encode(n.said[name])
		}))
		t.Cleanup(server.Close)
		peers[name] = server.URL
	}
	s, err := NewService(nil, nil, Config{Flags: opsapi.Flags{OpsPeers: peers}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n neighbourhood) board() *Board {
	b := &Board{NoStream: !n.stream}
	for _, durable := range []string{"points-awarder", "notify-sender", "search-indexer", auditor} {
		b.Stream.Consumers = append(b.Stream.Consumers, natsbroker.DurableStatus{Durable: durable, AckFloor: n.floor})
	}
	return b
}

// The audit looks at orders that are overdue, names the lost ones, and counts
// the explained ones by where their event is.
func TestTheAuditCountsWhatIsLostAndWhatIsExplained(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lost := newOrder()
	f.hear(t, messagingtest.Envelope(t, lost, 2, OrderPaid{about{lost}}))
	if _, err := f.pool.Exec(t.Context(), `UPDATE order_progress SET paid_at = now() - interval '1 minute'`); err != nil {
		t.Fatal(err)
	}
	n := credited()
	n.said["points"] = opsapi.Evidence{}
	s := n.service(t)
	s.pool = f.pool
	if got := s.audit(t.Context(), n.board()); got.Checked != 1 || got.Lost != 1 || len(got.LostIDs) != 1 || got.LostIDs[0] != lost {
		t.Errorf("got %+v, want order %s lost", got, lost)
	}
	n.floor = paidAt - 1
	if got := s.audit(t.Context(), n.board()); got.Lost != 0 || got.Explained["broker"] != 1 {
		t.Errorf("got %+v, want one order whose event the broker has", got)
	}
}

// Rates and forecasts are of the last seconds, and a counter that starts anew
// is no negative rate.
func TestTheBoardMeasuresRatesByItsLastSamples(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(after time.Duration, last, handled, pending uint64) *Board {
		return &Board{At: start.Add(after), Stream: natsbroker.Status{LastSeq: last,
			Consumers: []natsbroker.DurableStatus{{Durable: "points-awarder", Handled: handled, Pending: pending}}}}
	}
	first := at(0, 100, 50, 50)
	first.measure(&Board{})
	second := at(5*time.Second, 150, 90, 30)
	second.measure(first)
	if got, want := second.InRate, 10.0; got != want {
		t.Errorf("got %v events in a second, want %v", got, want)
	}
	flow := second.Flows["points-awarder"]
	if flow.Rate != 8 || flow.Waiting != 30 || flow.Forecast.Drained != 8*time.Second {
		t.Errorf("got %+v, want 8 a second and 30 waiting, gone in 8 s", flow)
	}
	third := at(6*time.Second, 5, 0, 0) // the stream was made anew
	third.measure(second)
	if third.InRate != 0 || third.Flows["points-awarder"].Rate != 0 {
		t.Errorf("got %v and %+v, want no rate below zero", third.InRate, third.Flows["points-awarder"])
	}
}
