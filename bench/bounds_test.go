package main

import (
	"strings"
	"testing"
)

// cellOf is a cell that measured the same in every run.
func cellOf(name string, readings Reading) Measured {
	runs := []Reading{readings, readings, readings}
	return Measured{Name: name, Runs: runs, Median: medians(runs)}
}

func TestADemandThatIsNotMetFails(t *testing.T) {
	t.Parallel()
	ours, theirs, other := cellOf("ours", Reading{rate: 30, inversions: 1}), cellOf("theirs", Reading{rate: 60}), cellOf("other", Reading{rate: 10})
	nothing := cellOf("nothing", Reading{rate: 0})
	of, per := reading{"ours", rate}, []reading{{"theirs", rate}}
	for _, tc := range []struct {
		name  string
		bound bound
		want  string
	}{
		{"just enough", bound{of: of, per: per, least: 0.5}, outcomePass},
		{"too little", bound{of: of, per: per, least: 0.51}, outcomeFail},
		{"too much", bound{of: of, per: per, most: 0.49}, outcomeFail},
		{"the best rival counts", bound{of: of, per: []reading{{"other", rate}, {"theirs", rate}}, least: 1}, outcomeFail},
		{"a rival is missing", bound{of: of, per: []reading{{"theirs", rate}, {"absent", rate}}, least: 0.1}, outcomeMissing},
		{"our cell is missing", bound{of: reading{"absent", rate}, per: per, least: 0.1}, outcomeMissing},
		{"nothing to compare with", bound{of: of, per: []reading{{"nothing", rate}}, least: 0.1}, outcomeFail},
		{"a figure above its bound", bound{of: of, most: 29}, outcomeFail},
		{"too little, as known", bound{of: of, per: per, least: 0.6, holds: 0.5}, outcomeMissed},
		{"less than known", bound{of: of, per: per, least: 0.6, holds: 0.51}, outcomeFail},
		{"enough, and once it was not", bound{of: of, per: per, least: 0.5, holds: 0.4}, outcomePass},
		{"too much, as known", bound{of: of, most: 20, holds: 30}, outcomeMissed},
		{"more than known", bound{of: of, most: 20, holds: 29}, outcomeFail},
		{"a figure that must be zero", bound{of: reading{"ours", inversions}, exact: true}, outcomeFail},
	} {
		got := judge([]Measured{ours, theirs, other, nothing}, []bound{tc.bound})[0]
		if got.Outcome != tc.want {
			t.Errorf("%s: got %s (%v), want %s", tc.name, got.Outcome, got.Value, tc.want)
		}
	}
}

func TestTheWorstRunCountsForAFigureThatIsNoRatio(t *testing.T) {
	t.Parallel()
	runs := []Reading{{inversions: 0}, {inversions: 0}, {inversions: 2}}
	m := Measured{Name: "ours", Runs: runs, Median: medians(runs)}
	got := judge([]Measured{m}, []bound{{of: reading{"ours", inversions}, exact: true}})[0]
	if got.Outcome != outcomeFail || got.Value != 2 {
		t.Errorf("got %s with %v, want %s with 2", got.Outcome, got.Value, outcomeFail)
	}
}

func TestEveryDemandNamesCellsThatExist(t *testing.T) {
	t.Parallel()
	cells := map[string]bool{}
	for _, g := range (&stand{}).groups() {
		for _, c := range g.cells {
			if cells[c.name] {
				t.Errorf("two cells are called %s", c.name)
			}
			cells[c.name] = true
		}
	}
	for _, b := range bounds {
		for _, r := range append([]reading{b.of}, b.per...) {
			if !cells[r.cell] {
				t.Errorf("%s: there is no cell %s", b.what, r.cell)
			}
		}
	}
}

func TestAResultFailsForWhatIsMissingUnlessItWasLeftOut(t *testing.T) {
	t.Parallel()
	missing := []Verdict{{What: "speed", Bound: "≥ 1", Outcome: outcomeMissing}}
	if why := (Result{Verdicts: missing}).failed(); !strings.Contains(why, "speed") {
		t.Errorf("got %q, want the demand that was not measured", why)
	}
	if why := (Result{Verdicts: missing, Only: "relay/"}).failed(); why != "" {
		t.Errorf("got %q, want nothing: it was left out", why)
	}
	broken := []Measured{{Name: "relay/1", Errors: []string{"events are lost"}}}
	if why := (Result{Cells: broken, Only: "relay/"}).failed(); !strings.Contains(why, "events are lost") {
		t.Errorf("got %q, want the error of the cell", why)
	}
}
