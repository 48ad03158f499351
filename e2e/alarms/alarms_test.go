// Package alarms makes faults in the running shop, waits for the alarms that a
// real Prometheus raises on really scraped data, mends as the runbook says, and
// waits for them to clear.
package alarms

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"orderpaid/demo"
)

func TestAlarmsFireOnRealFaultsAndClearWhenTheyAreMended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shop := startShop(t, dir)
	if err := demo.Load(t.Context(), demo.LoadConfig{OrderURL: shop.URL["order"], WebhookSecret: shop.WebhookSecret,
		Journal: filepath.Join(t.TempDir(), "journal.jsonl"), Orders: 20}); err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, shop)

	t.Run("EveryMetricOfTheRulesAndTheDashboardExists", func(t *testing.T) { everyMetricExists(t, p) })

	giveContact(t, shop)
	press(t, shop, "mail")   // every mail fails from here on, in every way that names its recipient
	press(t, shop, "relays") // nothing leaves the outboxes any more
	order(t, shop)
	p.waitFor(t, "OutboxOld", true)
	shopctl(t, dir, "outbox", "summary")
	press(t, shop, "heal")
	p.waitFor(t, "OutboxOld", false)

	press(t, shop, "points")
	p.waitFor(t, "ServiceSilent", true)
	press(t, shop, "heal")
	p.waitFor(t, "ServiceSilent", false)

	press(t, shop, "poison")
	p.waitFor(t, "DeadLetters", true)
	shopctl(t, dir, "dead-letters", "list")
	shopctl(t, dir, "dead-letters", "discard", "points/1", "--reason", "made by a test")
	p.waitFor(t, "DeadLetters", false)
	requireNothingPrivate(t, shop, dir)
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

// A prometheus is a real server that scrapes the shop once a second.
type prometheus struct{ url, root string }

func startPrometheus(t *testing.T, shop *demo.Stack) prometheus {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("no Prometheus is installed: apt-get install prometheus")
	}
	root, err := demo.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, url := range shop.OpsURL {
		targets = append(targets, strings.TrimPrefix(url, "http://"))
	}
	raw, err := json.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{filepath.Join(root, "deploy/prometheus/rules.yml")},
		"scrape_configs": []any{map[string]any{"job_name": "orderpaid", "static_configs": []any{map[string]any{"targets": targets}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.json") // JSON is YAML
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	addr := freeAddress(t)
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed: that is its error
	})
	p := prometheus{"http://" + addr, root}
	eventually(t, "Prometheus is ready", func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	return p
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// query returns the series of an instant query.
func (p prometheus) query(t *testing.T, expr string) []json.RawMessage {
	t.Helper()
	var answer struct {
		Data struct {
			Result []json.RawMessage `json:"result"`
		} `json:"data"`
	}
	p.get(t, "/api/v1/query?query="+expr, &answer)
	return answer.Data.Result
}

// waitFor waits until the alarm fires, or does not any more.
func (p prometheus) waitFor(t *testing.T, alarm string, firing bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("firing of %s is %v", alarm, firing), func() bool {
		var answer struct {
			Data struct {
				Alerts []struct {
					State  string            `json:"state"`
					Labels map[string]string `json:"labels"`
				} `json:"alerts"`
			} `json:"data"`
		}
		p.get(t, "/api/v1/alerts", &answer)
		for _, a := range answer.Data.Alerts {
			if a.Labels["alertname"] == alarm && a.State == "firing" {
				return firing
			}
		}
		return !firing
	})
}

func (p prometheus) get(t *testing.T, path string, v any) {
	t.Helper()
	resp, err := http.Get(p.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !cond(); <-time.After(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}
