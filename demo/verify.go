package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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
	r.step("load", time.Since(loading))
	memory, err := r.stack.memory() // now everything has been busy
	if err != nil {
		return err
	}

	report, err := Verify(ctx, r.stack, cfg.Journal, r.patience(), func(p Progress) {
		if p.Comparing {
			r.screen.keep() // it is told at once: the comparison reads everything, and says nothing meanwhile
		}
		r.screen.show(p.String())
	})
	if err != nil {
		return err
	}
	report.allowCopies(r.copies)
	r.screen.keep()
	r.step("until all was done", report.Waited)
	return r.print(report, cfg.Journal, memory)
}

// patience is how long the shop may take to finish after the load: generous,
// because what is measured here is whether, not how fast. A killed relay or
// consumer costs its lease.
func (r *run) patience() time.Duration {
	return time.Minute + time.Duration(r.Orders)*20*time.Millisecond
}

// print writes the report. A difference is an exit code, not another message.
func (r *run) print(report *Report, journal string, memory footprint) error {
	if r.JSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(struct {
			*Report
			Journal      string  `json:"journal"`
			MemoryBytes  int64   `json:"memory_bytes"`  // of all processes, after the load
			ReadySeconds float64 `json:"ready_seconds"` // from the start of the script until everything was ready
			Seconds      float64 `json:"seconds"`       // from the start of the script until now
		}{report, journal, memory.Bytes, r.ready.Seconds(), time.Since(r.started).Seconds()}); err != nil {
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
