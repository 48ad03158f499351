package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFiguresAreShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.5: "0.50", 12.34: "12.3", 123.4: "123", 1234.5: "1 235", 1234567: "1 234 567"} {
		if got := figure(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}

func TestQuantilesAreValuesThatWereMeasured(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: got %v, want 0", got)
	}
}

func TestTablesReplaceWhatStandsBetweenTheMarks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	before := "# Page\n\n" + tableFrom + "\nold\n" + tableTo + "\n\nafter\n"
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	result := Result{Full: true, At: time.Unix(0, 0), Cells: []Measured{{Name: "relay/1", Group: "drain", Runs: []Reading{{rate: 7}}, Median: Reading{rate: 7}}}}
	for range 2 { // again: what was written is replaced as well
		if err := result.writeDoc(file); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(raw)
	if strings.Contains(got, "old") || strings.Count(got, "relay/1") != 1 || !strings.HasPrefix(got, "# Page\n") || !strings.HasSuffix(got, "\nafter\n") {
		t.Errorf("got:\n%s", got)
	}
}

func TestAPartialResultIsNotPublished(t *testing.T) {
	t.Parallel()
	if err := (Result{Only: "relay/"}).writeDoc("nowhere.md"); err == nil || !strings.Contains(err.Error(), "full size") {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := between("no marks", "tables"); err == nil {
		t.Error("a page without marks was accepted")
	}
}

func TestAResultSurvivesItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sub", "last.json")
	want := Result{Events: 3, Cells: []Measured{{Name: "a", Runs: []Reading{{rate: 1.5}}}}, Verdicts: []Verdict{{What: "b", Value: ratio(1, 0)}}}
	if err := want.save(file); err != nil {
		t.Fatal(err)
	}
	got, err := loadResult(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.Events != 3 || got.Cells[0].Runs[0][rate] != 1.5 || got.Verdicts[0].Value != -1 {
		t.Errorf("got %+v", got)
	}
}
