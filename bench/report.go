package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Result is one run of the benchmark, as it is kept in a file.
type Result struct {
	At       time.Time  `json:"at"`
	Took     string     `json:"took"`
	Commit   string     `json:"commit"`
	Events   int        `json:"events"`
	Bytes    int        `json:"bytes"` // of an event, on average
	Runs     int        `json:"runs"`
	Only     string     `json:"only,omitempty"`  // the cells that were asked for; empty: all
	Full     bool       `json:"full"`            // all cells at full size were asked for
	Ended    string     `json:"ended,omitempty"` // where and why it ended before its time
	Machine  Machine    `json:"machine"`
	Cells    []Measured `json:"cells"`
	Verdicts []Verdict  `json:"verdicts"`
}

func (r Result) save(file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644)
}

func loadResult(file string) (r Result, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return r, fmt.Errorf("read the last result: %w", err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("read the last result: %w", err)
	}
	return r, nil
}

// failed says what stands between this result and success, or "". What was
// left out on purpose does not.
func (r Result) failed() string {
	var why []string
	for _, c := range r.Cells {
		for _, e := range c.Errors {
			why = append(why, c.Name+": "+e)
		}
	}
	for _, v := range r.Verdicts {
		if v.Outcome == outcomeFail || v.Outcome == outcomeMissing && r.Only == "" {
			why = append(why, v.What+": "+v.measured()+", demanded "+v.Bound)
		}
	}
	return strings.Join(why, "\n")
}

// markdown is the result as tables: the demands first, then every group.
func (r Result) markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "Measured on %s at commit %s in %s: medians of up to %d turns; %s events of %d bytes on average.\n\n",
		r.At.UTC().Format("2006-01-02"), r.Commit, r.Took, r.Runs, thousands(r.Events), r.Bytes)
	if r.Ended != "" {
		fmt.Fprintf(&b, "The run ended before its time, %s; what is missing was not measured.\n\n", r.Ended)
	}
	fmt.Fprintf(&b, "Machine: %s, %d cores shared by PostgreSQL %s, nats-server %s, the candidates and the load; %d MB of memory; Linux %s; %s. A page of 8 kB is on the disk after %s ms. Load before the start: %s.\n\n",
		m.CPU, m.Cores, m.Postgres, m.NATS, m.MemoryMB, m.Kernel, m.Go, figure(m.SyncMS), m.Load)
	b.WriteString("| what | demanded | measured | turn by turn | |\n|---|---|---|---|---|\n")
	for _, v := range r.Verdicts {
		if v.Outcome == outcomeMissing && r.Only != "" {
			continue
		}
		span := figure(v.Low) + " – " + figure(v.High)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", v.What, v.Bound, v.measured(), span, v.Outcome)
	}
	for cells := range slices.Values(byGroup(r.Cells)) {
		most := 0
		for _, c := range cells {
			most = max(most, len(c.Runs))
		}
		fmt.Fprintf(&b, "\nGroup: %s (%s)\n\n| cell | what | events/s | lowest – highest | PostgreSQL µs | NATS µs | own µs | load µs | WAL B | others, cores | more |\n|---|---|---|---|---|---|---|---|---|---|---|\n", cells[0].Group, turns(most))
		for _, c := range cells {
			b.WriteString(c.row())
		}
	}
	return b.String()
}

func turns(n int) string {
	if n == 1 {
		return "1 turn"
	}
	return fmt.Sprintf("%d turns", n)
}

func byGroup(cells []Measured) (groups [][]Measured) {
	for _, c := range cells {
		if n := len(groups); n == 0 || groups[n-1][0].Group != c.Group {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}

// row is the cell's line. What has no column of its own stands in the last.
func (c Measured) row() string {
	if len(c.Errors) > 0 {
		return fmt.Sprintf("| %s | %s | FAILED | | | | | | | | %s |\n", c.Name, c.What, strings.ReplaceAll(c.Errors[0], "\n", " "))
	}
	columns := []string{rate, cpuPostgres, cpuNATS, cpuOwn, cpuLoad, walTotal, others}
	text := func(name string) string {
		if v, ok := c.Median[name]; ok {
			return figure(v)
		}
		return ""
	}
	wal := text(walTotal)
	if wal == "" {
		wal = text(walDrain)
	}
	span := ""
	if _, ok := c.Median[rate]; ok {
		all := readings(c.Runs, rate)
		span = figure(quantile(all, 0)) + " – " + figure(quantile(all, 1))
	}
	var more []string
	for _, name := range sortedKeys(c.Median) {
		if !slices.Contains(columns, name) && name != walDrain {
			more = append(more, strings.ReplaceAll(name, "_", " ")+" "+figure(c.Median[name]))
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", c.Name, c.What, text(rate), span,
		text(cpuPostgres), text(cpuNATS), text(cpuOwn), text(cpuLoad), wal, text(others), strings.Join(more, ", "))
}

func (v Verdict) measured() string {
	if v.Outcome == outcomeMissing {
		return outcomeMissing
	}
	return strings.TrimSpace(figure(v.Value) + " " + v.Unit)
}

// figure writes a number with three digits that mean something.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 1000:
		return thousands(int(v + 0.5))
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// thousands writes 1234567 as 1 234 567.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + " " + digits[i:]
	}
	return digits
}

// The page that shows the last result, and what its tables stand between.
const (
	page      = "docs/06-performance.md"
	tableFrom = "<!-- tables: written by scripts/bench --write-doc -->"
	tableTo   = "<!-- tables end -->"
)

// writeDoc puts the result's tables between the marks of a page. Nobody types
// these figures.
func (r Result) writeDoc(file string) error {
	if !r.Full {
		return fmt.Errorf("write %s: the last result is not of all cells at full size; run scripts/bench without --quick and --only first", file)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("write tables: %w", err)
	}
	text, err := between(string(raw), r.markdown()+r.sizing())
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func between(text, tables string) (string, error) {
	head, rest, found := strings.Cut(text, tableFrom)
	_, tail, ended := strings.Cut(rest, tableTo)
	if !found || !ended {
		return "", fmt.Errorf("it lacks the marks %s and %s", tableFrom, tableTo)
	}
	return head + tableFrom + "\n\n" + tables + "\n" + tableTo + tail, nil
}
