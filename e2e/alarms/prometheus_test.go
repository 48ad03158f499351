package alarms

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"orderpaid/demo"
	"orderpaid/platform/porttest"
)

// A prometheus is a real server that scrapes its targets once a second.
type prometheus struct{ url, root string }

func startPrometheus(t *testing.T, targets ...string) prometheus {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("no Prometheus is installed: apt-get install prometheus")
	}
	root, err := demo.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	raw, err := json.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{impatient(t, root, dir)},
		"scrape_configs": []any{map[string]any{"job_name": "orderpaid", "static_configs": []any{map[string]any{"targets": targets}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.json") // JSON is YAML
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	addr := porttest.Free(t)
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

// impatient writes the rules with short times, and with bounds that one person
// can reach in a minute. What they look at, and for what, stays as it is.
func impatient(t *testing.T, root, dir string) (file string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`(?m)^( +for:) .+$`).ReplaceAllString(string(raw), "$1 1s")
	for _, shorter := range [][2]string{{"[5m]", "[10s]"}, {"> 60", "> 5"}, {`{state="parked"}) > 1000`, `{state="parked"}) > 0`}, {"seconds) > 15", "seconds) > 8"},
		{"replica_lag > 1000", "replica_lag > 100"}, {"age_seconds) > 1800", "age_seconds) > 8"}} {
		if !strings.Contains(rules, shorter[0]) {
			t.Fatalf("no rule has %q", shorter[0])
		}
		rules = strings.ReplaceAll(rules, shorter[0], shorter[1])
	}
	file = filepath.Join(dir, "rules.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// query returns the series of an instant query.
func (p prometheus) query(t *testing.T, expr string) []json.RawMessage {
	t.Helper()
	var answer struct {
		Data struct {
			Result []json.RawMessage `json:"result"`
		} `json:"data"`
	}
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &answer)
	return answer.Data.Result
}

// see waits until a series of the expression is scraped.
func (p prometheus) see(t *testing.T, what, expr string) {
	t.Helper()
	eventually(t, what, func() bool { return len(p.query(t, expr)) > 0 })
}

// waitFor waits until the alarm fires, or does not any more. It may have come
// and gone while a command ran: to have fired a moment ago is to fire.
func (p prometheus) waitFor(t *testing.T, alarm string, firing bool) {
	t.Helper()
	series := fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"}`, alarm)
	if firing {
		series = "last_over_time(" + series + "[15s])"
	}
	eventually(t, fmt.Sprintf("firing of %s is %v", alarm, firing), func() bool {
		return len(p.query(t, series)) > 0 == firing
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
