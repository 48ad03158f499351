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

	"orderpaid/demo"
)

// A night is one in which everything breaks, and a person with a runbook.
type night struct {
	t    *testing.T
	dir  string // the shop's data, logs and settings
	shop *demo.Stack
	p    prometheus
}

func TestAlarmsFireOnRealFaultsAndClearWhenTheyAreMended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spans := startCollector(t)
	shop := startShop(t, dir, spans.env()...)
	n := &night{t, dir, shop, startPrometheus(t, shop)}
	eventually(t, "everything is scraped", func() bool {
		return len(n.p.query(t, "up == 1")) == len(shop.OpsURL)+len(shop.RelayURL)
	})
	if err := demo.Load(t.Context(), demo.LoadConfig{OrderURL: shop.URL["order"], WebhookSecret: shop.WebhookSecret,
		Journal: filepath.Join(t.TempDir(), "journal.jsonl"), Orders: 20}); err != nil {
		t.Fatal(err)
	}
	giveContact(t, shop)
	press(t, shop, "mail") // every mail fails from here on, in every way that names its recipient

	order := n.aConsumerLosesItsPlace()
	n.relaysAndAServiceStandStill()
	n.eventsAreWrong()
	n.searchLacksAVersion(order)
	n.clear("EffectsSlow")

	t.Run("EveryMetricOfTheRulesAndTheDashboardExists", func(t *testing.T) { everyMetricExists(t, n.p) })
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

// do gives a command of the runbook; look, one whose answer may be bad news.
func (n *night) do(args ...string)   { n.t.Helper(); shopctl(n.t, n.dir, true, args...) }
func (n *night) look(args ...string) { n.t.Helper(); shopctl(n.t, n.dir, false, args...) }

// aConsumerLosesItsPlace returns an order that was paid meanwhile.
func (n *night) aConsumerLosesItsPlace() (order string) {
	release := keepFromItsPlace(n.t, n.shop, "points")
	n.fire("ConsumerInactive")
	order = buy(n.t, n.shop)
	n.look("reconcile", "--since", "1h")
	release()
	n.clear("ConsumerInactive")
	return order
}

func (n *night) relaysAndAServiceStandStill() {
	press(n.t, n.shop, "relays") // nothing leaves the outboxes any more
	press(n.t, n.shop, "points")
	buy(n.t, n.shop)
	n.fire("OutboxOld", "NoRelay", "ServiceSilent")
	n.look("outbox", "summary")
	press(n.t, n.shop, "heal")
	n.fire("EffectsSlow") // they come late now
	n.clear("OutboxOld", "NoRelay", "ServiceSilent")
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
	eventually(n.t, "the payment is tried again", func() bool { return state() == "retrying" })
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

func (n *night) searchLacksAVersion(order string) {
	thaw := freeze(n.t, n.shop, "order") // who would be asked for it
	forget(n.t, n.shop, order)
	sendAgain(n.t, n.shop, order, 2)
	n.fire("VersionMissing")
	thaw()
	n.do("replay", "create", "search-indexer", "--from", "outbox", "--order", order, "--start", "--reason", "a version is missing")
	n.clear("VersionMissing")
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
