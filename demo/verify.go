package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// check places the orders, waits until the shop has done what it owes for
// them, compares, and prints the table.
func (r *run) check(ctx context.Context) error {
	loading := time.Now()
	cfg := r.loadConfig(0, func(done int) {
		r.screen.show(fmt.Sprintf("%s %d/%d orders", bar(done, r.Orders), done, r.Orders))
	})
	if err := r.load(ctx, cfg); err != nil {
		return err
	}
	r.screen.keep()
	r.screen.printf("  %-22s %6.1f s", "load", time.Since(loading).Seconds())

	report, err := Verify(ctx, r.stack, cfg.Journal, r.patience(), func(pass, of int) {
		r.screen.show(fmt.Sprintf("%s %d of %d checks of the databases pass", bar(pass, of), pass, of))
	})
	if err != nil {
		return err
	}
	r.screen.keep()
	r.screen.printf("  %-22s %6.1f s", "until all was done", report.Waited.Seconds())
	return r.print(report, cfg.Journal)
}

// patience is how long the shop may take to finish after the load: generous,
// because what is measured here is whether, not how fast. A killed relay or
// consumer costs its lease.
func (r *run) patience() time.Duration {
	return time.Minute + time.Duration(r.Orders)*20*time.Millisecond
}

// print writes the report. A difference is an exit code, not another message.
func (r *run) print(report *Report, journal string) error {
	memory, err := r.stack.memory()
	if err != nil {
		return err
	}
	if r.JSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(struct {
			*Report
			Journal     string  `json:"journal"`
			MemoryBytes int64   `json:"memory_bytes"`
			Seconds     float64 `json:"seconds"` // since the start of the script
		}{report, journal, memory.Bytes, time.Since(r.started).Seconds()}); err != nil {
			return err
		}
	} else {
		r.screen.printf("\n%s", report)
		r.screen.printf("  memory: %s", memory)
		r.screen.printf("  journal: %s", journal)
	}
	if !report.OK {
		return ExitError(1)
	}
	return nil
}

// String is the report as a table, with examples under what differs.
func (r *Report) String() string {
	rows := [][]string{{"check", "expected", "found", ""}}
	var examples []string
	for _, result := range r.Results {
		verdict := "ok"
		if !result.OK {
			verdict = "DIFFERS"
			examples = append(examples, result.Check+": "+strings.Join(result.Examples, "; "))
		}
		rows = append(rows, []string{result.Check, strconv.FormatInt(result.Expected, 10), strconv.FormatInt(result.Found, 10), verdict})
	}
	text := table(rows)
	for _, line := range append(examples, r.Notes...) {
		text += "\n  " + line
	}
	return text + "\n"
}
