// Package alarms makes faults in the running shop, waits for the alarms that a
// real Prometheus raises on really scraped data, mends as the runbook says, and
// waits for them to clear.
package alarms

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"orderpaid/demo"
)

// A night is one in which everything breaks, and a person with a runbook.
type night struct {
	t    *testing.T
	dir  string // the shop's data, logs and settings
	shop *demo.Stack
	p    prometheus
}

// C140, C141: among the faults are a program that is not scraped any more, whose
// alarms cannot fire, and a consumer that reads nothing, so that nothing is slow.
func TestAlarmsFireOnRealFaultsAndClearWhenTheyAreMended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spans := startCollector(t)
	shop := startShop(t, dir, append(spans.env(), "RECONCILE_EVERY=2s", "RECONCILE_IN_FLIGHT=10s")...)
	n := &night{t, dir, shop, startPrometheus(t, listeners(shop)...)}
	eventually(t, "everything is scraped", func() bool {
		return len(n.p.query(t, "up == 1")) == len(shop.OpsURL)+len(shop.RelayURL)
	})
	began := time.Now()
	load(t, shop, 20)
	giveContact(t, shop)
	press(t, shop, "mail") // every mail fails from here on, in every way that names its recipient

	long := n.anOrderWithManyEvents()
	n.relaysAndAServiceStandStill(long)
	n.eventsAreWrong()
	n.aReleaseIsBad()
	kept, lost := n.aConsumerLosesItsPlaceAndAnEvent()
	n.searchLacksAVersion(kept)
	n.aDurableIsDeleted()
	n.aDurableIsAhead()
	n.theBrokerIsFull()
	n.onlyAPersonKnows()
	n.tooManyAskAtOnce()
	n.anOrderIsLost(lost)
	n.clear("EffectsSlow")

	t.Run("EveryMetricOfTheRulesAndTheDashboardExists", func(t *testing.T) { everyMetricExists(t, n.p) })
	t.Run("EveryMetricMoves", func(t *testing.T) { requireMoved(t, n.p, began) })
	t.Run("OneTraceFromHTTPToEffect", func(t *testing.T) {
		spans.requireOneTraceFromHTTPToEffect(t)
		spans.requireEvents(t, "shop.retry", "shop.parked")
		spans.requireReplayIsLinked(t)
	})
	t.Run("NothingPrivateIsTold", func(t *testing.T) {
		requireNothingPrivate(t, shop, dir)
		spans.requireNothingPrivate(t)
	})
}

// fire waits until all these alarms fire; clear, until none does.
func (n *night) fire(alarms ...string) {
	n.t.Helper()
	for _, alarm := range alarms {
		n.p.waitFor(n.t, alarm, true)
	}
}

func (n *night) clear(alarms ...string) {
	n.t.Helper()
	for _, alarm := range alarms {
		n.p.waitFor(n.t, alarm, false)
	}
}

// see waits until a series of the expression is scraped.
func (n *night) see(what, expr string) {
	n.t.Helper()
	n.p.see(n.t, what, expr)
}

// do gives a command of the runbook; look, one whose answer may be bad news.
func (n *night) do(args ...string)   { n.t.Helper(); shopctl(n.t, n.dir, true, args...) }
func (n *night) look(args ...string) { n.t.Helper(); shopctl(n.t, n.dir, false, args...) }

// anOrderWithManyEvents makes one that has been refunded in many parts.
func (n *night) anOrderWithManyEvents() (order string) {
	order = buy(n.t, n.shop)
	refundInParts(n.t, n.shop, order, 48)
	eventually(n.t, "all refunds have taken points back", func() bool {
		return text(n.t, n.shop, "points", `SELECT count(*)::text FROM points_entry WHERE order_id = $1 AND kind <> 'award'`, order) == "48"
	})
	n.whyIsQuickAndTheSameEverywhere(order, "")
	return order
}

func (n *night) relaysAndAServiceStandStill(order string) {
	press(n.t, n.shop, "relays") // nothing leaves the outboxes any more
	press(n.t, n.shop, "points")
	buy(n.t, n.shop)
	n.fire("OutboxOld", "NoRelay", "ServiceSilent", "NotScraped", "ReconciliationLate")
	n.whyIsQuickAndTheSameEverywhere(order, "points")
	n.look("outbox", "summary")
	press(n.t, n.shop, "heal")
	n.fire("EffectsSlow") // they come late now
	n.clear("OutboxOld", "NoRelay", "ServiceSilent", "NotScraped", "ReconciliationLate")
	press(n.t, n.shop, "duplicates")
}

// eventsAreWrong makes a payment that fails, first in a way that may pass, then
// for good; one behind it; and one that cannot be read.
func (n *night) eventsAreWrong() {
	refuse(n.t, n.shop, "raise_exception")
	order := buy(n.t, n.shop)
	state := func() string {
		return text(n.t, n.shop, "points", `SELECT state FROM message_failure WHERE aggregate_id = $1 AND aggregate_version = 2`, order)
	}
	n.see("the payment is tried again", `shop_consumer_unresolved{consumer="points-awarder", state="retrying"} > 0`)
	refuse(n.t, n.shop, "check_violation")
	eventually(n.t, "the payment is a dead letter", func() bool { return state() == "open" })
	sendAgain(n.t, n.shop, order, 3)
	press(n.t, n.shop, "poison")
	alter(n.t, n.shop, "points", `UPDATE message_failure SET due_at = now() - interval '1 minute' WHERE state = 'open'`)
	n.fire("DeadLetters", "DeadLetterOverdue", "TooManyParked")

	n.do("dead-letters", "groups")
	alter(n.t, n.shop, "points", `DROP FUNCTION refuse CASCADE`)
	n.do("dead-letters", "retry", "--service", "points", "--consumer", "points-awarder", "--reason", "the cause is mended")
	poisoned := func() string {
		return text(n.t, n.shop, "points", `SELECT failure_id::text FROM message_failure WHERE state = 'open' AND error_code = 'bad_data'`)
	}
	n.clear("TooManyParked")
	eventually(n.t, "what cannot be read is a dead letter again", func() bool { return poisoned() != "" })
	n.do("dead-letters", "discard", "points/"+poisoned(), "--reason", "made by a test")
	n.clear("DeadLetters", "DeadLetterOverdue")
}

// aReleaseIsBad makes every award fail, which is nobody's fault but the
// service's: it stands still, and goes on by itself.
func (n *night) aReleaseIsBad() {
	refuse(n.t, n.shop, "check_violation")
	load(n.t, n.shop, 30)
	n.fire("ConsumerStandsStill")
	n.do("dead-letters", "groups")
	alter(n.t, n.shop, "points", `DROP FUNCTION refuse CASCADE`)
	n.do("dead-letters", "retry", "--service", "points", "--consumer", "points-awarder", "--reason", "the release was taken back")
	n.clear("ConsumerStandsStill", "DeadLetters")
}

// aConsumerLosesItsPlaceAndAnEvent returns two orders that were paid meanwhile:
// one that the consumer sees later, and one whose payment it never sees.
func (n *night) aConsumerLosesItsPlaceAndAnEvent() (kept, lost string) {
	release := keepFromItsPlace(n.t, n.shop, "points")
	n.fire("ConsumerInactive")
	lost = buy(n.t, n.shop)
	takeAway(n.t, n.shop, "points-awarder", lost)
	kept = buy(n.t, n.shop)
	n.see("what nobody fetches is pending", `shop_durable_pending{durable="points-awarder"} > 0`)
	handBack := hold(n.t, n.shop, "points-awarder")
	n.see("what nobody acknowledges is in flight", `shop_durable_in_flight{durable="points-awarder"} > 0`)
	handBack()
	n.fire("EventsUnread")
	n.look("reconcile", "--since", "1h")
	release()
	n.clear("ConsumerInactive", "EventsUnread")
	return kept, lost
}

func (n *night) searchLacksAVersion(order string) {
	eventually(n.t, "search has the order", func() bool {
		return text(n.t, n.shop, "search", `SELECT last_version::text FROM message_progress WHERE aggregate_id = $1`, order) == "2"
	})
	thaw := freeze(n.t, n.shop, "order") // who would be asked for it
	forget(n.t, n.shop, order)
	sendAgain(n.t, n.shop, order, 2)
	n.fire("VersionMissing")
	thaw()
	n.do("replay", "create", "search-indexer", "--from", "outbox", "--order", order, "--start", "--reason", "a version is missing")
	n.clear("VersionMissing")
}

func (n *night) aDurableIsDeleted() {
	deleteDurable(n.t, n.shop, "notify-sender")
	n.fire("DurableGone")
	n.do("topology", "apply")
	n.clear("DurableGone")
}

func (n *night) aDurableIsAhead() {
	moveAhead(n.t, n.shop, "notify-sender")
	n.fire("DurableAhead")
	n.look("topology", "plan")
	n.do("topology", "apply", "--anew", "notify-sender")
	n.clear("DurableAhead")
}

func (n *night) theBrokerIsFull() {
	shrink(n.t, n.shop)
	buy(n.t, n.shop)
	n.fire("StreamNearlyFull", "EventsRefused")
	n.look("outbox", "list", "--state", "failed")
	n.look("topology", "plan")
	n.do("topology", "apply", "--update")
	eventually(n.t, "nothing that was refused is left", func() bool {
		refused := ""
		for _, service := range []string{"order", "points", "notify"} { // each for itself: whoever stated something meanwhile
			refused = text(n.t, n.shop, service, `SELECT event_id::text FROM message_outbox_held WHERE state = 'failed' LIMIT 1`)
			if refused != "" {
				n.look("outbox", "release", refused, "--reason", "the stream takes it now")
				return false
			}
		}
		return true
	})
	n.clear("StreamNearlyFull", "EventsRefused")
}

// onlyAPersonKnows pays an order twice, and has the mail server take a mail and
// never say so.
func (n *night) onlyAPersonKnows() {
	breakMail(n.t, n.shop, `{"kind":"drop","keep":true}`)
	order := buy(n.t, n.shop)
	payAgain(n.t, n.shop, order)
	n.fire("PaymentWaits", "MailInDoubt")
	breakMail(n.t, n.shop, `{"kind":"refuse"}`) // as before
	n.do("exceptions", "list")
	n.do("doubts", "list")
	n.settleAll("order", `SELECT exception_id::text FROM payment_exception WHERE state = 'open' LIMIT 1`, "exceptions", "settle")
	n.settleAll("notify", `SELECT notification_id FROM delivery_task WHERE state = 'unknown' LIMIT 1`, "doubts", "settle", "--outcome", "happened")
	n.clear("PaymentWaits", "MailInDoubt")
}

// settleAll gives a command for each id that a query finds, until there is none.
func (n *night) settleAll(service, sql string, command ...string) {
	n.t.Helper()
	eventually(n.t, strings.Join(command, " "), func() bool {
		id := text(n.t, n.shop, service, sql)
		if id != "" {
			n.do(append(command, service+"/"+id, "--reason", "looked at by a test")...)
		}
		return id == ""
	})
}

func (n *night) tooManyAskAtOnce() {
	stop := crowd(n.t, n.shop.URL["order"]+"/v1/products")
	n.fire("PoolExhausted")
	stop()
	n.clear("PoolExhausted")
}

func (n *night) anOrderIsLost(order string) {
	n.see("reconciliation finds it, too", `shop_reconcile_findings{check="on the stream, not consumed", service="points"} > 0`)
	n.fire("OrdersLostOrDuplicated", "DifferencesFound")
	n.do("why", order)
	n.look("reconcile", "--since", "2h", "--in-flight", "10s", "--repair", "--reason", "taken away by a tool")
	n.clear("OrdersLostOrDuplicated")
	// What was poisoned earlier is applied by search and was never staged: that
	// difference stays. This one is gone.
	eventually(n.t, "the difference is gone", func() bool {
		return len(n.p.query(n.t, `ALERTS{alertname="DifferencesFound", alertstate="firing", check="on the stream, not consumed"}`)) == 0
	})
}

// metricName matches the metrics of ours and of the pools in an expression.
var metricName = regexp.MustCompile(`\b(?:shop|pgxpool)_[a-z_]+`)

// everyMetricExists asks Prometheus for each metric that somebody relies on: an
// alarm on a metric that nobody exports never fires and looks like health.
func everyMetricExists(t *testing.T, p prometheus) {
	var names []string
	for _, file := range []string{"deploy/prometheus/rules.yml", "deploy/grafana/orderpaid.json"} {
		raw, err := os.ReadFile(filepath.Join(p.root, file))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, metricName.FindAllString(string(raw), -1)...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		eventually(t, name+" is scraped", func() bool { return len(p.query(t, "count("+name+")")) == 1 })
	}
}

func TestEveryAlarmNamesASectionOfTheRunbook(t *testing.T) {
	t.Parallel()
	root, err := demo.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/05-operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(page), -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors[strings.ReplaceAll(name, " ", "-")] = true
	}
	named := regexp.MustCompile(`runbook: docs/05-operate\.md#(\S+)`).FindAllStringSubmatch(string(rules), -1)
	if got, want := len(named), strings.Count(string(rules), "- alert:"); got != want {
		t.Errorf("got %d runbooks for %d alarms", got, want)
	}
	for _, n := range named {
		if !anchors[n[1]] {
			t.Errorf("docs/05-operate.md has no section #%s", n[1])
		}
	}
}
