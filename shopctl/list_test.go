package shopctl

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

func TestAListSaysWhoHasMoreAndShowsTheRestWhileOneDoesNotAnswer(t *testing.T) {
	t.Parallel()
	var clients []*opsapi.Client
	for service, answer := range map[string]string{
		"notify": `{"items":[{"id":"ntf_1","key":"ord_1","what":"mail","code":"outcome_unknown","since":"2026-03-01T14:02:00Z"}],"next":"ntf_1"}`,
		"points": `not JSON`,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.Query().Get("limit"); got != "1" {
				t.Errorf("got limit %q, want 1", got)
			}
			_, _ = io.WriteString(w, answer)
		}))
		t.Cleanup(server.Close)
		client, err := opsapi.NewClient(service, server.URL, process.Secret("viewer-viewer-viewer-viewer"))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	doubts := askEach(clients, func(c *opsapi.Client) (opsapi.Page[opsapi.Doubt], error) { return c.Doubts(t.Context(), "", 1) },
		func(service string, d opsapi.Doubt) ownedDoubt { return ownedDoubt{service, d} })
	for asJSON, want := range map[bool][]string{
		false: {"notify/ntf_1", "ord_1", "2026-03-01T14:02:00Z", "… and more of notify: --limit"},
		true:  {`"service": "notify"`, `"id": "ntf_1"`},
	} {
		var out strings.Builder
		err := doubts.write(&out, asJSON, "id\twhat\tcode\tabout\tsince", ownedDoubt.row)
		if err == nil || !strings.Contains(err.Error(), "points") {
			t.Errorf("got %v, want an error that names points", err)
		}
		for _, part := range want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("got %q, want it to contain %q", out.String(), part)
			}
		}
	}
}

// Who copies the hint types it as Bob, and with a reason: Alice is refused.
func TestTheHintOfALargeReplayCanBeTyped(t *testing.T) {
	t.Parallel()
	got := whatNext("points/1", false, true)
	want := EnvFile + "=.orderpaid/approver.env shopctl replay approve points/1 --reason \"…\""
	if !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to end in %q", got, want)
	}
	var plan strings.Builder
	writePlan(&plan, opsapi.ReplayPlan{Consumer: "points-awarder", Items: 2000, NeedsApproval: true})
	if got := plan.String(); strings.Contains(got, "shopctl") || !strings.Contains(got, "second person") {
		t.Errorf("got %q, want no command about a replay that does not exist", got)
	}
}

func TestALineAboutRetentionReadsWellWithoutAnythingToTell(t *testing.T) {
	t.Parallel()
	for want, report := range map[string]messaging.RetentionReport{
		"0 partitions made, 0 taken off, 0 payloads erased, 0 rows forgotten": {},
		"1 partitions made, 2 taken off (a b), 3 payloads erased, 4 rows forgotten; kept for what is unfinished or was applied lately: c": {
			Prepared: 1, Detached: []string{"a", "b"}, Erased: 3, Forgotten: 4, Kept: []string{"c"}},
	} {
		if got := retained(report); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
