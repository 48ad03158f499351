package main

import (
	"fmt"
	"strings"
)

// A bound is what is demanded of a ratio, or of a figure that means the same
// on every machine.
type bound struct {
	what   string
	of     reading
	per    []reading // the best of them; none: the figure itself is judged
	least  float64   // 0: no lower bound
	most   float64   // 0: no upper bound, unless exact
	exact  bool      // most holds even if it is 0
	factor string    // the unit of a figure that is no ratio

	// Where a demand is not met, what must hold instead, so that it gets no
	// worse; docs/06-performance.md says why, and what was tried. 0: the demand
	// itself.
	holds float64
}

// A reading names one figure of one cell.
type reading struct{ cell, name string }

// The demands. A ratio whose cells were not both measured has no verdict.
var bounds = []bound{
	{what: "relay drain ÷ raw PublishAsync, both at the server's default sync",
		of: reading{"relay/1@default", rate}, per: []reading{{"publish/async@default", rate}}, least: 0.50},
	{what: "relay drain ÷ raw PublishAsync, both under sync always",
		of: reading{"relay/1@always", rate}, per: []reading{{"publish/async@always", rate}}, least: 7},
	{what: "relay drain under sync always ÷ at the server's default sync",
		of: reading{"relay/1@always", rate}, per: []reading{{"relay/1@default", rate}}, least: 0.60},
	{what: "relay drain ÷ textbook row claim",
		of: reading{"relay/1@default", rate}, per: []reading{{"rowclaim/1@default", rate}}, least: 1.6},
	{what: "relay drain ÷ best Go library, tuned",
		of: reading{"relay/1@default", rate}, per: []reading{{"watermill/tuned@default", rate}, {"river/tuned@default", rate}}, least: 3.5, holds: 2.8},
	{what: "relay drain ÷ best Go library, documented defaults",
		of: reading{"relay/1@default", rate}, per: []reading{{"watermill/defaults@default", rate}, {"river/defaults@default", rate}}, least: 20, holds: 11},
	{what: "drain with published rows standing ÷ drain of an empty table",
		of: reading{"standing/many@always", rate}, per: []reading{{"standing/none@always", rate}}, least: 0.90},
	{what: "drain with a transaction left open ÷ without, fourth round",
		of: reading{"rounds/open@always", roundRate(4)}, per: []reading{{"rounds/none@always", roundRate(4)}}, least: 0.60},
	{what: "inversions within an aggregate, 1 relay", of: reading{"relay/1@always", inversions}, exact: true},
	{what: "inversions within an aggregate, 2 relays", of: reading{"relay/2@always", inversions}, exact: true},
	{what: "inversions within an aggregate, 4 relays", of: reading{"relay/4@always", inversions}, exact: true},
	{what: "longest wait of a row committed late with a lower id",
		of: reading{"late/commits@always", lateWait}, most: 0.5, factor: "s"},
	{what: "the same while a backlog is drained: how long higher ids of its shard go first",
		of: reading{"late/backlog@always", latePassed}, most: 0.5, factor: "s"},
	{what: "WAL per event, insert to published with evidence ÷ row claim's",
		of: reading{"relay/1@default", walTotal}, per: []reading{{"rowclaim/1@default", walTotal}}, most: 0.50},
	{what: "commit → ack at 200/s ÷ a bare publish at 200/s, p50",
		of: reading{"paced/commit-ack@always", p50}, per: []reading{{"paced/publish@always", p50}}, most: 3},
	{what: "commit → ack at 200/s ÷ a bare publish at 200/s, p99",
		of: reading{"paced/commit-ack@always", p99}, per: []reading{{"paced/publish@always", p99}}, most: 5},
	{what: "pay commits with the wake-up on ÷ without any",
		of: reading{"pay/wake-on", rate}, per: []reading{{"pay/wake-off", rate}}, least: 0.85},
	{what: "points, batch handler through the consumer ÷ its SQL in a loop",
		of: reading{"points/batch@always", rate}, per: []reading{{"points/sql-loop", rate}}, least: 0.75, holds: 0.58},
	{what: "points, batch handler ÷ a transaction an event, 16 workers",
		of: reading{"points/batch@always", rate}, per: []reading{{"points/each-16@always", rate}}, least: 6},
	{what: "points, 80 % of the events for one user ÷ evenly spread",
		of: reading{"points/batch-hot@always", rate}, per: []reading{{"points/batch@always", rate}}, least: 0.85},
	{what: "pay over HTTP ÷ the same SQL by pgbench",
		of: reading{"pay/http", rate}, per: []reading{{"pay/pgbench", rate}}, least: 0.60, holds: 0.44},
	{what: "memory of a relay with a million events pending",
		of: reading{"memory/backlog@always", relayPeak}, most: 150, factor: "MB"},
	{what: "memory of a consumer that comes back to a million messages",
		of: reading{"memory/backlog@always", pointsPeak}, most: 150, factor: "MB"},
}

// A Verdict is a bound with what was measured.
type Verdict struct {
	What    string  `json:"what"`
	Bound   string  `json:"bound"`
	Value   float64 `json:"value"`
	Low     float64 `json:"low"` // the lowest and highest of the ratios turn by turn
	High    float64 `json:"high"`
	Unit    string  `json:"unit,omitempty"`
	Outcome string  `json:"outcome"`
}

// The outcomes of a bound.
const (
	outcomePass    = "PASS"
	outcomeMissed  = "MISSED, and no worse than known"
	outcomeFail    = "FAIL"
	outcomeMissing = "not measured"
)

// judge holds the measurements against the bounds.
func judge(measured []Measured, demands []bound) []Verdict {
	byName := map[string]Measured{}
	for _, m := range measured {
		byName[m.Name] = m
	}
	out := make([]Verdict, len(demands))
	for i, b := range demands {
		out[i] = b.judge(byName)
	}
	return out
}

func (b bound) judge(byName map[string]Measured) Verdict {
	v := Verdict{What: b.what, Bound: b.String(), Unit: b.factor, Outcome: outcomeMissing}
	of, ok := byName[b.of.cell]
	if _, has := of.Median[b.of.name]; !ok || !has {
		return v
	}
	if len(b.per) == 0 {
		all := readings(of.Runs, b.of.name)
		v.Value, v.Low, v.High = quantile(all, 1), quantile(all, 0), quantile(all, 1) // the worst run counts
	} else {
		best, ok := bestOf(byName, b.per)
		if !ok {
			return v
		}
		v.Value = ratio(of.Median[b.of.name], best.Median[b.bestName(best.Name)])
		v.Low, v.High = spread(of.Runs, b.of.name, best.Runs, b.bestName(best.Name))
	}
	least, most := b.least, b.most
	switch {
	case within(v.Value, least, most, b.exact):
		v.Outcome = outcomePass
		return v
	case b.holds > 0 && least > 0:
		least = b.holds
	case b.holds > 0:
		most = b.holds
	}
	v.Outcome = outcomeFail
	if within(v.Value, least, most, b.exact) {
		v.Outcome = outcomeMissed
	}
	return v
}

func within(v, least, most float64, exact bool) bool {
	return v >= 0 && v >= least && (most == 0 && !exact || v <= most)
}

// ratio returns -1, which passes nothing, where there is none.
func ratio(of, per float64) float64 {
	if per <= 0 {
		return -1
	}
	return of / per
}

// bestOf returns the cell with the largest median. All must have been
// measured: the best of those that happen to be there is not the best.
func bestOf(byName map[string]Measured, per []reading) (best Measured, ok bool) {
	for i, r := range per {
		m, ok := byName[r.cell]
		if _, has := m.Median[r.name]; !ok || !has {
			return Measured{}, false
		}
		if i == 0 || m.Median[r.name] > best.Median[r.name] {
			best = m
		}
	}
	return best, true
}

func (b bound) bestName(cell string) string {
	for _, r := range b.per {
		if r.cell == cell {
			return r.name
		}
	}
	return ""
}

// spread returns the extremes of the ratios of runs that were neighbours.
func spread(of []Reading, ofName string, per []Reading, perName string) (low, high float64) {
	var ratios []float64
	for i := range min(len(of), len(per)) {
		ratios = append(ratios, ratio(of[i][ofName], per[i][perName]))
	}
	return quantile(ratios, 0), quantile(ratios, 1)
}

func readings(runs []Reading, name string) (values []float64) {
	for _, r := range runs {
		values = append(values, r[name])
	}
	return values
}

// String is the bound as people write it.
func (b bound) String() string {
	var parts []string
	if b.least > 0 {
		parts = append(parts, fmt.Sprintf("≥ %s", figure(b.least)))
	}
	switch {
	case b.exact && b.most == 0:
		parts = append(parts, "= 0")
	case b.most > 0:
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("≤ %s %s", figure(b.most), b.factor)))
	}
	if b.holds > 0 {
		parts = append(parts, "holds "+figure(b.holds))
	}
	return strings.Join(parts, ", ")
}
