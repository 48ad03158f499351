package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
)

var noon = time.Date(2026, 3, 1, 14, 3, 0, 0, time.UTC)

// paidTrail is an order that was paid a minute ago and of which nothing has
// come yet. change makes it the case of a test.
func paidTrail(change func(*Trail)) Trail {
	promised := noon.Add(30 * time.Second).Format(time.RFC3339)
	t := Trail{Order: "ord_1", Evidence: []opsapi.Evidence{{Service: "order", Now: noon}},
		Events: []EventTrail{{Service: "order", StagedEvent: messaging.StagedEvent{EventID: uuid.New(), Kind: "OrderPaid.v1", State: "published"}}},
		Effects: []OwnedEffect{
			{"order", opsapi.Effect{What: "order", State: "PAID", Version: 2, Says: map[string]string{"paid_at": "2026-03-01T14:02:00Z", "total": "CNY 19.90"}}},
			{"order", opsapi.Effect{What: "follow_up", ID: "points", State: "pending", Says: map[string]string{"promised_by": promised}}},
			{"order", opsapi.Effect{What: "follow_up", ID: "notification", State: "pending", Says: map[string]string{"promised_by": promised}}},
			{"search", opsapi.Effect{What: "document", State: "PAID", Version: 2}},
			{"notify", opsapi.Effect{What: "mail", State: "sent", At: noon}},
		}}
	change(&t)
	return t
}

func at(state string, change func(*ConsumerTrail)) func(*Trail) {
	return func(t *Trail) {
		c := ConsumerTrail{Service: "points", Consumer: "points-awarder", State: state, ErrorCode: "sqlstate_57P01"}
		if change != nil {
			change(&c)
		}
		t.Events[0].Consumers = []ConsumerTrail{c}
	}
}

func late(t *Trail) {
	t.Effects[1].Says["promised_by"] = noon.Add(-10 * time.Second).Format(time.RFC3339)
}

func TestAVerdictSaysInWordsWhatAnOrderWaitsFor(t *testing.T) {
	t.Parallel()
	next, due := noon.Add(40*time.Second), noon.Add(4*time.Hour)
	for name, c := range map[string]struct {
		change func(*Trail)
		code   string
		en, zh string
	}{
		"all is there": {func(t *Trail) {
			t.Effects = append(t.Effects, OwnedEffect{"points", opsapi.Effect{What: "points_entry", State: "award", At: noon, Says: map[string]string{"points": "19"}}})
		}, VerdictDone, "Paid at 14:02 UTC. Your 19 points were booked at 14:03 UTC. The mail was sent at 14:03 UTC.", "您的 19 积分已于 14:03 UTC 入账。"},
		"in time": {func(*Trail) {}, VerdictPending, "Your points will come by 14:03 UTC: the points service has not got to it yet.", "积分服务尚未处理到。"},
		"late, and tried again": {func(tr *Trail) {
			late(tr)
			at(AtRetrying, func(c *ConsumerTrail) { c.NextAttemptAt = &next })(tr)
		}, VerdictLate, "Your points are late: the points service could not do it (sqlstate_57P01); next attempt in 40 s.", "您的积分延迟了：积分服务处理失败（sqlstate_57P01），40 秒后再次尝试。"},
		"parked": {at(AtParked, nil), VerdictPending, "it waits for an earlier step of this order.", "它在等待该订单之前的步骤。"},
		"a dead letter": {at(AtDeadLetter, func(c *ConsumerTrail) { c.DueAt = &due }), VerdictFailed,
			"a person has to look by 18:03 UTC.", "需要人工处理，最迟 18:03 UTC。"},
		"given up":     {at(AtDiscarded, nil), VerdictFailed, "a person decided that they will not come.", "经人工决定，不再处理。"},
		"not sent on":  {func(t *Trail) { t.Events[0].State = "pending" }, VerdictPending, "the news of the payment is waiting to be sent on.", "支付消息正在等待发送。"},
		"refused":      {func(t *Trail) { t.Events[0].State = "failed" }, VerdictFailed, "was refused on its way", "被拒绝"},
		"never staged": {func(t *Trail) { t.Events = nil }, VerdictFailed, "the payment was not passed on", "支付消息没有发出"},
		"points are silent": {func(t *Trail) { t.Silent = []Silence{{"points", "does not answer"}} }, VerdictUnknown,
			"the points service does not answer.", "积分服务没有响应。"},
		"points are silent, and the order service knows": {func(t *Trail) {
			t.Silent = []Silence{{"points", "does not answer"}}
			t.Effects[1].State, t.Effects[1].At = "done", noon
		}, VerdictDone, "Your points were booked at 14:03 UTC.", "您的积分已于 14:03 UTC 入账。"},
		"the order service is silent": {func(t *Trail) {
			t.Silent = []Silence{{"order", "does not answer"}}
			t.Effects = t.Effects[3:]
		}, VerdictUnknown, "By the order list the order is paid.", "订单列表显示该订单已支付。"},
		"mail unknown": {func(t *Trail) { t.Effects[4].State = "unknown" }, VerdictFailed, "The mail may have arrived", "邮件可能已送达"},
		"mail failed": {func(t *Trail) {
			t.Effects[4].State, t.Effects[4].Says = "failed", map[string]string{"code": "no_contact"}
		}, VerdictFailed, "could not be delivered (no_contact)", "邮件无法送达（no_contact）"},
		"not paid":       {func(t *Trail) { t.Effects[0].State = "PENDING_PAYMENT" }, VerdictPending, "The order waits for the payment of CNY 19.90.", "订单等待支付 CNY 19.90。"},
		"cancelled":      {func(t *Trail) { t.Effects[0].State = "CANCELLED" }, VerdictDone, "cancelled before it was paid", "在支付前已取消"},
		"list is behind": {func(t *Trail) { t.Effects[3].Version = 1 }, VerdictPending, "does not show the latest state yet", "尚未显示最新状态"},
		"no such order":  {func(t *Trail) { t.Effects = nil }, VerdictUnknown, "There is no such order.", "没有这个订单。"},
	} {
		got := judge(paidTrail(c.change))
		if got.Code != c.code || !strings.Contains(got.EN, c.en) || !strings.Contains(got.ZH, c.zh) {
			t.Errorf("%s: got %s\n  %s\n  %s\nwant %s\n  … %s …\n  … %s …", name, got.Code, got.EN, got.ZH, c.code, c.en, c.zh)
		}
	}
}

// C58: what came from outside must not move the cursor of whoever reads it.
func TestTextFromOutsideCannotWriteToTheTerminal(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"plain 文字":          "plain 文字",
		"\x1b[2J\x1b[1;1H":  "?[2J?[1;1H",
		"a\tb\nc":           "a?b?c",
		"evil\u202etxt.exe": "evil?txt.exe",
		"\u009b31mred":      "?31mred",
	} {
		if got := Printable(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
	var out strings.Builder
	e := Explanation{Trails: []Trail{{Order: "x\x1b[2J"}}}
	if err := e.Write(&out, false); err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("got %q, %v", out.String(), err)
	}
}
