package notify

import (
	"encoding/json"
	"strings"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

func TestOrderPaidTwiceAsksForOneMail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	event := paid(t, order, "u1")
	f.deliver(t, event, event)
	f.deliver(t, event)
	f.deliver(t, paid(t, order, "u1")) // under another event id
	if got := f.notification(t, "u1"); got.State != Queued || got.OrderID != order || got.Template != OrderPaidTemplate {
		t.Errorf("got %+v", got)
	}
	if got := f.count(t, `SELECT count(*) FROM message_inbox WHERE result = 'already_planned'`); got != 1 {
		t.Errorf("inbox rows that say already_planned: got %d, want 1", got)
	}
}

// C52: somebody renames the durable. The stream comes from the beginning, to an
// inbox that is empty, and nobody gets a second mail.
func TestTheStreamAgainUnderAnotherDurableAsksForNoMail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	event := paid(t, newOrder(), "u1")
	f.deliver(t, event)
	renamed := messaging.NewConsumer("notify-sender-v2", f.pool, nil, messaging.ConsumerConfig{})
	f.service.register(renamed)
	if answers := messagingtest.Deliver(t, renamed, event); !messagingtest.AllAcked(answers) {
		t.Errorf("the event was not acknowledged: %+v", answers)
	}
	if got := f.count(t, `SELECT count(*) FROM delivery_task`); got != 1 {
		t.Errorf("got %d mails, want 1", got)
	}
}

func TestTheSenderIsWokenWhenAMailWasQueuedAndNotBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	woken := 0
	*f.wake = func() {
		if f.count(t, `SELECT count(*) FROM delivery_task`) == 0 {
			t.Error("woken before the commit")
		}
		woken++
	}
	event := paid(t, newOrder(), "u1")
	f.deliver(t, event)
	f.deliver(t, event)
	if woken != 1 {
		t.Errorf("woken %d times, want 1", woken)
	}
}

func TestEventsThatContradictTheirContractAreDeadLetters(t *testing.T) {
	t.Parallel()
	const good = `{"order_id":"ORDER","user_id":"u1","total":{"amount":1,"currency":"CNY","exponent":2},"paid_at":"2026-10-03T02:00:41Z"}`
	for name, c := range map[string]struct{ old, new, code string }{
		"no total":               {`"total"`, `"sum"`, "bad_total"},
		"no amount":              {`"amount":1,`, ``, "bad_total"},
		"negative amount":        {`"amount":1`, `"amount":-1`, "bad_total"},
		"amount with decimals":   {`"amount":1`, `"amount":19.9`, "bad_data"},
		"no exponent":            {`,"exponent":2`, ``, "bad_total"},
		"absurd exponent":        {`"exponent":2`, `"exponent":9`, "bad_total"},
		"currency that is text":  {`"CNY"`, `"CNY\r\nBcc: x"`, "bad_total"},
		"no user":                {`"u1"`, `""`, "bad_user_id"},
		"user that is text":      {`"u1"`, `"u1@mail.example"`, "bad_user_id"},
		"order that is text":     {`"ORDER"`, `"a\r\nb"`, "bad_order_id"},
		"another order":          {`"ORDER"`, `"ord_other"`, "bad_order_id"},
		"no time":                {`"paid_at"`, `"at"`, "bad_paid_at"},
		"time of the year 10000": {`"2026-10-03T02:00:41Z"`, `"9999-12-31T23:59:59-23:59"`, "bad_paid_at"},
		"time in words":          {`"2026-10-03T02:00:41Z"`, `"yesterday"`, "bad_data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			order := newOrder()
			data := strings.Replace(good, c.old, c.new, 1)
			f.deliver(t, withData(t, order, strings.ReplaceAll(data, "ORDER", order)), paid(t, newOrder(), "u2"))
			if got := f.count(t, `SELECT count(*) FROM message_failure WHERE error_code = $1 AND error_class = 'permanent'`, c.code); got != 1 {
				t.Errorf("dead letters with code %s: got %d, want 1", c.code, got)
			}
			f.notification(t, "u2")
			if got := f.count(t, `SELECT count(*) FROM delivery_task`); got != 1 {
				t.Errorf("mails queued: got %d, want only that of the good event", got)
			}
		})
	}
}

// withData returns an OrderPaid with other data.
func withData(t *testing.T, order, data string) []byte {
	t.Helper()
	var env messaging.Envelope
	if err := json.Unmarshal(messagingtest.Envelope(t, order, 2, OrderPaid{}), &env); err != nil {
		t.Fatal(err)
	}
	env.Data = json.RawMessage(data)
	raw, err := json.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
