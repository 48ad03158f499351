package console

import (
	"testing"

	"github.com/google/uuid"

	"orderpaid/platform/messaging/messagingtest"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/postgres"
)

func TestAnEventHeardTwiceIsInTheTrailOnceAndCountedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	paid := messagingtest.Envelope(t, order, 2, OrderPaid{about{order}})
	f.hear(t, paid, paid)
	f.hear(t, paid)
	if got := f.tally(t); got.Paid != 1 || got.Unfinished != 1 || got.Duplicated != 0 {
		t.Errorf("got %+v, want one paid order, unfinished, nothing duplicated", got)
	}
	var rows int
	if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM audit_event`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if rows != 1 {
		t.Errorf("got %d rows of the trail, want 1", rows)
	}
}

func TestReconciliationIsToldOfTheTrailOfAnEventAndOfNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.hear(t, messagingtest.Envelope(t, order, 2, OrderPaid{about{order}}))
	var heard uuid.UUID
	if err := f.pool.QueryRow(t.Context(), `SELECT event_id FROM audit_event`).Scan(&heard); err != nil {
		t.Fatal(err)
	}
	got, err := (&Service{pool: f.pool}).effectsOf(t.Context(), []opsapi.EventRef{{EventID: heard}, {EventID: uuid.Must(uuid.NewV7())}})
	if err != nil || len(got) != 1 || got[0].EventID != heard || got[0].Key != order {
		t.Errorf("got %+v, %v, want the one event that was heard", got, err)
	}
}

func TestASecondEffectForOneOrderIsADuplicate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.hear(t,
		messagingtest.Envelope(t, order, 2, OrderPaid{about{order}}),
		messagingtest.Envelope(t, "pte_1", 1, PointsAwarded{about{order}}),
		messagingtest.Envelope(t, "pte_2", 1, PointsAwarded{about{order}}),
		messagingtest.Envelope(t, "ntf_1", 1, NotificationSent{about{order}}))
	got := f.tally(t)
	if got.Credited != 1 || got.Mailed != 1 || got.Duplicated != 1 {
		t.Errorf("got %+v, want credited 1, mailed 1, duplicated 1", got)
	}
}

// What is counted are effects: a payment or an award that is stated under two
// event ids and was made once has harmed nobody.
func TestASecondEventOfOneFactIsNotADuplicatedEffect(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.hear(t,
		messagingtest.Envelope(t, order, 2, OrderPaid{about{order}}),
		messagingtest.Envelope(t, order, 2, OrderPaid{about{order}}),
		messagingtest.Envelope(t, "pte_1", 1, PointsAwarded{about{order}}),
		messagingtest.Envelope(t, "pte_1", 1, PointsAwarded{about{order}}),
		messagingtest.Envelope(t, "ntf_1", 1, NotificationSent{about{order}}))
	if got := f.tally(t); got.Paid != 1 || got.Credited != 1 || got.Mailed != 1 || got.Duplicated != 0 {
		t.Errorf("got %+v, want one order, and nothing duplicated", got)
	}
}

func TestAnOrderIsFinishedOnceItIsCreditedMailedAndIndexed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	// The effects may be heard of before the payment.
	f.hear(t, messagingtest.Envelope(t, "pte_1", 1, PointsAwarded{about{order}}), messagingtest.Envelope(t, "ntf_1", 1, NotificationSent{about{order}}))
	f.confirm(t, order)
	f.confirm(t, order)
	f.hear(t, messagingtest.Envelope(t, order, 2, OrderPaid{about{order}}))
	if got := f.tally(t); got.Unfinished != 0 || got.Indexed != 1 || got.Paid != 1 {
		t.Errorf("got %+v, want one order, finished, indexed once", got)
	}
}

// A trail that can be edited proves nothing.
func TestTheTrailCannotBeChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	f.hear(t, messagingtest.Envelope(t, order, 1, OrderCreated{about{order}}))
	for _, sql := range []string{`UPDATE audit_event SET producer = 'nobody'`, `DELETE FROM audit_event`, `TRUNCATE audit_event`} {
		_, err := f.pool.Exec(t.Context(), sql)
		if got, want := postgres.Code(err), "42501"; got != want {
			t.Errorf("%s: got SQLSTATE %q, want %s", sql, got, want)
		}
	}
}

func TestAnOrderIDThatIsNoneIsKeptOutOfTheBoard(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.hear(t, messagingtest.Envelope(t, "x", 1, OrderPaid{about{`<script>alert(1)</script>`}}))
	if got := f.tally(t).Unfinished; got != 0 {
		t.Errorf("got %d unfinished orders, want 0", got)
	}
}
