package alarms

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"orderpaid/demo"
)

// private is what no log, error or metric may ever hold.
const private = "Very.Private.Person"

// giveContact tells the shop a customer's address before everything breaks.
func giveContact(t *testing.T, shop *demo.Stack) {
	t.Helper()
	body := `{"email":"` + private + `@customers.example","locale":"en"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, shop.URL["notify"]+"/v1/users/alarmed/contact", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("give a contact: %s", resp.Status)
	}
}

// sqlErrors collects every text in which a database keeps what went wrong.
const sqlErrors = `
SELECT coalesce(string_agg(text, E'\n'), '') FROM (
	SELECT error_detail || coalesce(error_stack, '') AS text FROM message_failure
	UNION ALL SELECT coalesce(last_error, '') FROM message_outbox_pending
	UNION ALL SELECT last_error FROM message_outbox_held) e`

// requireNothingPrivate looks through all logs, metrics and kept errors.
func requireNothingPrivate(t *testing.T, shop *demo.Stack, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "log", "*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("there are no logs: %v", err)
	}
	for _, log := range logs {
		raw, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		requireAbsent(t, filepath.Base(log), string(raw))
	}
	for service, url := range shop.OpsURL {
		requireAbsent(t, "the metrics of "+service, page(t, url+"/metrics"))
		conn, err := pgx.Connect(t.Context(), shop.DSN(demo.Database(service), "shop_owner"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var kept string
		if err := conn.QueryRow(t.Context(), sqlErrors).Scan(&kept); err != nil {
			t.Fatal(err)
		}
		requireAbsent(t, "the errors kept by "+service, kept)
	}
}

func requireAbsent(t *testing.T, where, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.Contains(strings.ToLower(line), strings.ToLower(private)) {
			t.Errorf("%s tells a customer's address", where)
			return
		}
	}
}

// requireNothingPrivate looks through everything that was exported.
func (c *traces) requireNothingPrivate(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong != nil || len(c.spans) == 0 {
		t.Fatalf("there are no traces: %v", c.wrong)
	}
	if strings.Contains(strings.ToLower(c.raw.String()), strings.ToLower(private)) {
		t.Error("a trace tells a customer's address")
	}
}
