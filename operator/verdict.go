package operator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"orderpaid/platform/opsapi"
)

// A Verdict says what became of an order in words that a customer could read.
type Verdict struct {
	Code string `json:"code"` // done, pending, late, failed or unknown: the worst of its parts
	EN   string `json:"en"`
	ZH   string `json:"zh"`
}

// The codes of a verdict, the better first.
const (
	VerdictDone    = "done"    // everything that was promised is there
	VerdictPending = "pending" // and in time
	VerdictLate    = "late"    // after the promised time, and still being worked on
	VerdictUnknown = "unknown" // a service that knows does not answer
	VerdictFailed  = "failed"  // a person must act
)

var verdictRank = map[string]int{VerdictDone: 0, VerdictPending: 1, VerdictLate: 2, VerdictUnknown: 3, VerdictFailed: 4}

// words collects sentences in both languages.
type words struct {
	code   string
	en, zh []string
}

func (w *words) say(code, en, zh string) {
	if verdictRank[code] > verdictRank[w.code] {
		w.code = code
	}
	w.en, w.zh = append(w.en, en), append(w.zh, zh)
}

func (w *words) verdict() Verdict {
	return Verdict{w.code, strings.Join(w.en, " "), strings.Join(w.zh, "")}
}

// judge puts a trail into words.
func judge(t Trail) Verdict {
	w := &words{code: VerdictDone}
	now := t.now()
	paid := w.aboutOrder(t)
	if paid {
		w.aboutPoints(t, now)
		w.aboutMail(t, now)
	}
	w.aboutSearch(t)
	return w.verdict()
}

// now is the time by the services' databases; this machine's clock may be off.
func (t Trail) now() time.Time {
	for _, e := range t.Evidence {
		return e.Now
	}
	return time.Now()
}

// aboutOrder reports whether the order is paid, so that the rest is owed.
func (w *words) aboutOrder(t Trail) (paid bool) {
	if t.silent("order") {
		doc, found := t.effect("search", "document", nil)
		w.say(VerdictUnknown, "The order service does not answer now.", "订单服务现在没有响应。")
		if found {
			w.say(VerdictUnknown, fmt.Sprintf("By the order list the order is %s.", stateEN[doc.State]), fmt.Sprintf("订单列表显示该订单%s。", stateZH[doc.State]))
		}
		_, awarded := t.effect("points", "points_entry", nil)
		return doc.State == "PAID" || awarded
	}
	o, found := t.effect("order", "order", nil)
	if !found {
		w.say(VerdictUnknown, "There is no such order.", "没有这个订单。")
		return false
	}
	switch o.State {
	case "PENDING_PAYMENT":
		w.say(VerdictPending, fmt.Sprintf("The order waits for the payment of %s.", o.Says["total"]), fmt.Sprintf("订单等待支付 %s。", o.Says["total"]))
		if _, open := t.effect("order", "payment_exception", isOpen); open {
			w.say(VerdictFailed, "The payment provider announced something that does not fit it; a person has to look.", "支付方的通知与订单不符，需要人工处理。")
		}
		return false
	case "CANCELLED":
		w.say(VerdictDone, "The order was cancelled before it was paid.", "订单在支付前已取消。")
		return false
	}
	en, zh := fmt.Sprintf("Paid at %s.", clock(o.Says["paid_at"])), fmt.Sprintf("%s 已支付。", clock(o.Says["paid_at"]))
	if refunded := o.Says["refunded"]; refunded != "" {
		en, zh = en+fmt.Sprintf(" %s were paid back.", refunded), zh+fmt.Sprintf("已退款 %s。", refunded)
	}
	w.say(VerdictDone, en, zh)
	return true
}

var (
	stateEN = map[string]string{"PENDING_PAYMENT": "not paid yet", "PAID": "paid", "CANCELLED": "cancelled"}
	stateZH = map[string]string{"PENDING_PAYMENT": "尚未支付", "PAID": "已支付", "CANCELLED": "已取消"}
)

func isOpen(e opsapi.Effect) bool  { return e.State == "open" }
func isAward(e opsapi.Effect) bool { return e.State == "award" }

func (w *words) aboutPoints(t Trail, now time.Time) {
	entry, booked := t.effect("points", "points_entry", isAward)
	followUp, _ := t.followUp("points")
	switch {
	case booked:
		w.say(VerdictDone, fmt.Sprintf("Your %s points were booked at %s.", entry.Says["points"], hour(entry.At)),
			fmt.Sprintf("您的 %s 积分已于 %s 入账。", entry.Says["points"], hour(entry.At)))
	case followUp.State == "done":
		w.say(VerdictDone, fmt.Sprintf("Your points were booked at %s.", hour(followUp.At)), fmt.Sprintf("您的积分已于 %s 入账。", hour(followUp.At)))
	case t.silent("points"):
		w.say(VerdictUnknown, "Whether your points are booked is not known now: the points service does not answer.",
			"您的积分是否已入账暂时无法得知：积分服务没有响应。")
	default:
		w.owed(t, now, "points", followUp, "Your points", "您的积分", "the points service", "积分服务")
	}
}

func (t Trail) followUp(kind string) (opsapi.Effect, bool) {
	return t.effect("order", "follow_up", func(e opsapi.Effect) bool { return e.ID == kind })
}

// owed says why something has not come, from the event that should bring it.
func (w *words) owed(t Trail, now time.Time, service string, followUp opsapi.Effect, thing, thingZH, who, whoZH string) {
	code, en, zh := VerdictPending, thing+" will come", thingZH+"即将到账"
	if service == "notify" {
		zh = thingZH + "即将发出"
	}
	if promised, err := time.Parse(time.RFC3339, followUp.Says["promised_by"]); err == nil {
		en += " by " + hour(promised)
		if now.After(promised) {
			code, en, zh = VerdictLate, thing+" are late", thingZH+"延迟了"
			if service == "notify" {
				en = thing + " is late"
			}
		}
	}
	code, reason, reasonZH := blame(t, now, service, who, whoZH, code)
	w.say(code, en+": "+reason, zh+"："+reasonZH)
}

// blame finds what OrderPaid waits for on its way to a service.
func blame(t Trail, now time.Time, service, who, whoZH, code string) (string, string, string) {
	ev, found := t.event("OrderPaid")
	if !found {
		return VerdictFailed, "the payment was not passed on; a person has to look.", "支付消息没有发出，需要人工处理。"
	}
	for _, c := range ev.Consumers {
		if c.Service != service {
			continue
		}
		switch c.State {
		case AtRetrying:
			return code, fmt.Sprintf("%s could not do it (%s); next attempt %s.", who, c.ErrorCode, in(now, c.NextAttemptAt)),
				fmt.Sprintf("%s处理失败（%s），%s再次尝试。", whoZH, c.ErrorCode, inZH(now, c.NextAttemptAt))
		case AtParked:
			return code, "it waits for an earlier step of this order.", "它在等待该订单之前的步骤。"
		case AtDeadLetter:
			return VerdictFailed, fmt.Sprintf("%s cannot do it by itself (%s); a person has to look%s.", who, c.ErrorCode, by(c.DueAt)),
				fmt.Sprintf("%s无法自动处理（%s），需要人工处理%s。", whoZH, c.ErrorCode, byZH(c.DueAt))
		case AtDiscarded:
			return VerdictFailed, "a person decided that they will not come.", "经人工决定，不再处理。"
		}
	}
	switch ev.State {
	case "failed":
		return VerdictFailed, "the news of the payment was refused on its way; a person has to look.", "支付消息在途中被拒绝，需要人工处理。"
	case "pending", "publishing":
		return code, "the news of the payment is waiting to be sent on.", "支付消息正在等待发送。"
	default:
		return code, fmt.Sprintf("%s has not got to it yet.", who), fmt.Sprintf("%s尚未处理到。", whoZH)
	}
}

func (w *words) aboutMail(t Trail, now time.Time) {
	mail, asked := t.effect("notify", "mail", nil)
	followUp, _ := t.followUp("notification")
	switch {
	case mail.State == "sent":
		w.say(VerdictDone, fmt.Sprintf("The mail was sent at %s.", hour(mail.At)), fmt.Sprintf("邮件已于 %s 发送。", hour(mail.At)))
	case mail.State == "unknown":
		w.say(VerdictFailed, "The mail may have arrived, but the mail server never said so; a person has to look.", "邮件可能已送达，但邮件服务器没有确认，需要人工处理。")
	case mail.State == "failed":
		w.say(VerdictFailed, fmt.Sprintf("The mail could not be delivered (%s).", mail.Says["code"]), fmt.Sprintf("邮件无法送达（%s）。", mail.Says["code"]))
	case asked && mail.Says["attempts"] != "0" && mail.Says["attempts"] != "":
		w.say(VerdictLate, "The mail server has put the mail off; it is tried again.", "邮件服务器暂缓了邮件，将再次发送。")
	case asked:
		w.say(VerdictPending, "The mail is about to be sent.", "邮件即将发送。")
	case !asked && followUp.State == "done":
		w.say(VerdictDone, fmt.Sprintf("The mail was sent at %s.", hour(followUp.At)), fmt.Sprintf("邮件已于 %s 发送。", hour(followUp.At)))
	case t.silent("notify"):
		w.say(VerdictUnknown, "Whether the mail was sent is not known now: the mail service does not answer.", "邮件是否已发送暂时无法得知：邮件服务没有响应。")
	default:
		w.owed(t, now, "notify", followUp, "The mail", "邮件", "the mail service", "邮件服务")
	}
}

// aboutSearch only speaks when the order list is behind.
func (w *words) aboutSearch(t Trail) {
	o, known := t.effect("order", "order", nil)
	doc, found := t.effect("search", "document", nil)
	switch {
	case t.silent("search"):
		w.say(VerdictUnknown, "The order list does not answer now.", "订单列表现在没有响应。")
	case known && (!found || doc.Version < o.Version):
		w.say(VerdictPending, "The order list does not show the latest state yet.", "订单列表尚未显示最新状态。")
	}
}

func clock(rfc3339 string) string {
	at, err := time.Parse(time.RFC3339, rfc3339)
	if err != nil {
		return "?"
	}
	return hour(at)
}

func hour(at time.Time) string { return at.UTC().Format("15:04 UTC") }

func in(now time.Time, at *time.Time) string {
	if at == nil || !at.After(now) {
		return "now"
	}
	return "in " + seconds(at.Sub(now)) + " s"
}

func inZH(now time.Time, at *time.Time) string {
	if at == nil || !at.After(now) {
		return "即将"
	}
	return seconds(at.Sub(now)) + " 秒后"
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Round(time.Second) / time.Second)) }

func by(at *time.Time) string {
	if at == nil {
		return ""
	}
	return " by " + hour(*at)
}

func byZH(at *time.Time) string {
	if at == nil {
		return ""
	}
	return "，最迟 " + hour(*at)
}

func formatID(n int64) string { return strconv.FormatInt(n, 10) }
