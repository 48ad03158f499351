package operator

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// C138: the machine on which the comparison runs is an hour ahead of the
// database. An event that was staged a second ago is on its way, and no finding.
func TestAgesAreToldByTheClockOfEachDatabase(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(-time.Hour).UTC()
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ops/service":
			fmt.Fprintf(w, `{"service":"order","consumers":[],"now":%q}`, now.Format(time.RFC3339Nano))
		case "/ops/facts":
			asked = r.URL.Query().Get("until")
			fmt.Fprintf(w, `{"items":[{"kind":"OrderPaid.v1","aggregate_id":"a","aggregate_version":"1","at":%q,"state":"queued"}]}`, now.Add(-time.Second).Format(time.RFC3339Nano))
		default:
			fmt.Fprint(w, `{"items":[]}`)
		}
	}))
	defer server.Close()
	fleet, err := NewFleet(map[string]string{"order": server.URL}, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	report, err := fleet.Reconcile(t.Context(), ReconcileConfig{})
	if err != nil || report.Facts != 1 || len(report.Findings) != 0 {
		t.Errorf("got %+v, %v, want one fact and no finding", report, err)
	}
	if until, err := time.Parse(time.RFC3339Nano, asked); err != nil || !until.Equal(now) {
		t.Errorf("asked for facts until %s, want until %s", asked, now)
	}
}

// C145: somebody asks for half a year, and messages are kept for three months. A
// payment of before that is no finding, and neither is an entry that was made
// only now for an event of then.
func TestWhatRetentionHasPutAwayIsNotMissing(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	kept := now.Add(-90 * 24 * time.Hour).Truncate(time.Second)
	old := fmt.Sprintf("%012x-7000-8000-000000000001", kept.Add(-time.Hour).UnixMilli())
	old = old[:8] + "-" + old[8:]
	young := fmt.Sprintf("%012x-7000-8000-000000000001", now.Add(-time.Hour).UnixMilli())
	young = young[:8] + "-" + young[8:]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ops/service":
			fmt.Fprintf(w, `{"service":"points","consumers":[],"now":%q,"kept_since":%q}`, now.Format(time.RFC3339Nano), kept.Format(time.RFC3339))
		case "/ops/facts":
			if since, err := time.Parse(time.RFC3339Nano, r.URL.Query().Get("since")); err == nil && since.After(kept) {
				fmt.Fprint(w, `{"items":[]}`)
				return
			}
			fmt.Fprintf(w, `{"items":[{"kind":"PointsAwarded.v1","aggregate_id":"a","aggregate_version":"1","at":%q,"state":"unstaged"}]}`, kept.Add(-time.Hour).Format(time.RFC3339Nano))
		case "/ops/effects":
			fmt.Fprintf(w, `{"items":[{"what":"points_entry","id":"late","key":"o","event_id":%q},{"what":"points_entry","id":"made up","key":"o","event_id":%q}]}`, old, young)
		case "/ops/outbox/lookup":
			fmt.Fprint(w, `{"event_ids":[],"versions":[]}`)
		default:
			fmt.Fprint(w, `{"items":[]}`)
		}
	}))
	defer server.Close()
	fleet, err := NewFleet(map[string]string{"points": server.URL}, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	report, err := fleet.Reconcile(t.Context(), ReconcileConfig{Window: 180 * 24 * time.Hour})
	if err != nil || len(report.Findings) != 1 || report.Findings[0].Event.AggregateID != "made up" {
		t.Errorf("got %+v, %v, silent %v, want one finding: the entry whose event must be there", report.Findings, err, report.Silent)
	}
	if !report.Shortened || report.Since.Before(kept) {
		t.Errorf("the report says that it began at %v, shortened %t, want it to say that it looked back to %v only", report.Since, report.Shortened, kept)
	}
}
