package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// A Reading is what one run of a cell has measured, by name.
type Reading map[string]float64

// The names of readings. Rates and costs are per event.
const (
	rate        = "per_second"
	cpuPostgres = "postgres_us" // microseconds of CPU
	cpuNATS     = "nats_us"
	cpuOwn      = "own_us"      // of the candidate's own processes
	cpuLoad     = "load_us"     // of what makes its work, where that is a process of its own
	others      = "other_cores" // cores that were busy with something else: the noise
	walDrain    = "wal_drain"   // bytes, while the events were published
	walTotal    = "wal_total"   // bytes, from the insert to published
	p50         = "p50_ms"
	p99         = "p99_ms"
	longest     = "max_ms"
	inversions  = "inversions" // within an aggregate, by first appearance on the stream
	lateWait    = "late_wait_s"
	latePassed  = "passed_over_s" // for how long those with a higher id went first
	lateRows    = "overtaken"     // rows that were late
	relayPeak   = "relay_peak_mb"
	pointsPeak  = "points_peak_mb"
)

// A cell is one candidate at one task.
type cell struct {
	name string // group/candidate, and @ the server's sync interval where that matters
	what string // for the table
	once bool   // one run is enough, or all that there is time for
	run  func(ctx context.Context) (Reading, error)
}

// A group is a set of cells that are compared with each other and therefore
// take turns.
type group struct {
	title string
	share float64 // of the time of a whole run, in hundredths
	cells []cell
	// prepare builds, once, what all runs of the group need. Optional.
	prepare func(ctx context.Context) (cleanup func(), err error)
}

// A Measured is a cell with its readings, as it is kept in the result.
type Measured struct {
	Name   string    `json:"name"`
	What   string    `json:"what"`
	Group  string    `json:"group"`
	Runs   []Reading `json:"runs"`
	Median Reading   `json:"median"`
	Errors []string  `json:"errors,omitempty"`
}

// runTimeout ends a run that does not get anywhere.
const runTimeout = 8 * time.Minute

// fewestTurns are taken however long they take: one run has no median.
const fewestTurns = 2

// measure runs the cells of a group whose name matches, turn by turn, and
// writes a line for each run. A cell that failed once is not run again. No turn
// begins after ends, once the fewest are done. With an error it returns what
// has been measured so far.
func (g group) measure(ctx context.Context, runs int, ends time.Time, only *regexp.Regexp, progress io.Writer) ([]Measured, error) {
	chosen := slices.DeleteFunc(slices.Clone(g.cells), func(c cell) bool { return !only.MatchString(c.name) })
	if len(chosen) == 0 {
		return nil, nil
	}
	out := make([]Measured, len(chosen))
	for i, c := range chosen {
		out[i] = Measured{Name: c.name, What: c.what, Group: g.title}
	}
	defer func() {
		for i := range out {
			out[i].Median = medians(out[i].Runs)
		}
	}()
	if g.prepare != nil {
		fmt.Fprintf(progress, "%s: preparing\n", g.title)
		cleanup, err := g.prepare(ctx)
		if cleanup != nil {
			defer cleanup()
		}
		if err != nil {
			return out, g.unprepared(ctx, out, err, progress)
		}
	}
	for turn := range runs {
		if turn >= fewestTurns && time.Now().After(ends) {
			fmt.Fprintf(progress, "%s: %d turns are all that there is time for\n", g.title, turn)
			break
		}
		for i, c := range chosen {
			if len(out[i].Errors) > 0 || c.once && turn > 0 {
				continue
			}
			runCtx, cancel := context.WithTimeout(ctx, runTimeout)
			r, err := c.run(runCtx)
			cancel()
			if ctx.Err() != nil {
				return out, ctx.Err()
			}
			if err != nil {
				err = fmt.Errorf("run %d: %w", turn+1, err)
				out[i].Errors = append(out[i].Errors, err.Error())
				fmt.Fprintf(progress, "%-32s FAILED: %v\n", c.name, err)
				continue
			}
			out[i].Runs = append(out[i].Runs, r)
			fmt.Fprintf(progress, "%-32s run %d  %s\n", c.name, turn+1, r)
		}
	}
	return out, nil
}

// unprepared fails all cells of the group, and not the groups after it.
func (g group) unprepared(ctx context.Context, out []Measured, err error, progress io.Writer) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = fmt.Errorf("prepare %s: %w", g.title, err)
	fmt.Fprintf(progress, "%s: FAILED: %v\n", g.title, err)
	for i := range out {
		out[i].Errors = append(out[i].Errors, err.Error())
	}
	return nil
}

// String shows the readings in the order of their names.
func (r Reading) String() string {
	text := ""
	for _, name := range sortedKeys(r) {
		text += fmt.Sprintf(" %s=%s", name, figure(r[name]))
	}
	return text[min(1, len(text)):]
}

func medians(runs []Reading) Reading {
	values := map[string][]float64{}
	for _, r := range runs {
		for name, v := range r {
			values[name] = append(values[name], v)
		}
	}
	m := Reading{}
	for name, vs := range values {
		m[name] = median(vs)
	}
	return m
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the value at the rank nearest to q, and 0 for no values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// distribution is what is told about a set of durations, in milliseconds.
func distribution(durations []time.Duration) Reading {
	ms := make([]float64, len(durations))
	for i, d := range durations {
		ms[i] = float64(d.Microseconds()) / 1000
	}
	return Reading{p50: quantile(ms, 0.5), p99: quantile(ms, 0.99), longest: quantile(ms, 1)}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// errCheated: a run has ended without having done its work.
var errCheated = errors.New("the work was not done")
