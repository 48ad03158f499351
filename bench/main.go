package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

type options struct {
	Quick      bool          `help:"A fifth of the events, three runs, a tenth of the history: ten minutes instead of forty. The ratios are rougher; the demands are the same."`
	Only       string        `placeholder:"REGEXP" help:"Measure only cells whose name matches, for example 'relay/|publish/'."`
	Events     int           `placeholder:"N" help:"Pending events of a drain; everything else is scaled with it. Defaults to 100000, and to 20000 with --quick."`
	Runs       int           `placeholder:"N" help:"Runs of each cell. Defaults to 5, and to 3 with --quick."`
	Within     time.Duration `default:"40m" placeholder:"TIME" help:"When the time is over, cells get fewer runs than that, two at least; the tables say which. Each group has its share of the time. Defaults to 40m."`
	JSON       string        `name:"json" placeholder:"FILE" default:".orderpaid/bench/last.json" help:"Where the result is kept. Defaults to .orderpaid/bench/last.json."`
	ReportOnly bool          `help:"Exit with 0 although a demand is not met."`
	WriteDoc   bool          `help:"Measure nothing: write the tables of the last result into docs/06-performance.md."`
	List       bool          `help:"Measure nothing: list the cells."`
	Dir        string        `placeholder:"DIR" default:".orderpaid/bench" help:"Where servers and logs lie; on the disk that is to be measured. Defaults to .orderpaid/bench."`
}

const about = `Measures this project, its limits and what people would use instead, in one run on one machine.

It needs Linux, Go, PostgreSQL's programs with pgbench, 20 GB of disk, and a machine that has nothing else to do.`

func main() {
	var o options
	kong.Parse(&o, kong.Name("scripts/bench"), kong.Description(about))
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "scripts/bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.WriteDoc {
		last, err := loadResult(o.JSON)
		if err != nil {
			return err
		}
		last.Verdicts = judge(last.Cells, bounds) // by what is demanded now
		return last.writeDoc(page)
	}
	if o.List {
		for _, g := range (&stand{sizing: o.size()}).groups() {
			for _, c := range g.cells {
				fmt.Printf("%-28s %s\n", c.name, c.what)
			}
		}
		return nil
	}
	if runtime.GOOS != "linux" {
		return errors.New("it needs Linux: the CPU of each process is read from /proc")
	}
	only, err := regexp.Compile(o.Only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	result, err := o.measure(ctx, only)
	if len(result.Cells) > 0 {
		fmt.Println(result.markdown() + result.sizing())
	}
	if err != nil {
		return err
	}
	if why := result.failed(); why != "" && !o.ReportOnly {
		return errors.New("not met:\n" + why)
	}
	return nil
}

// size is how much work was asked for.
func (o options) size() sizing {
	z := fullSize()
	events, runs := z.events, z.runs
	if o.Quick {
		events, runs = z.events/5, 3
	}
	if o.Events > 0 {
		events = o.Events
	}
	if o.Runs > 0 {
		runs = o.Runs
	}
	return z.scaled(events, runs)
}

// groups are all that there is to measure, in order.
func (s *stand) groups() []group {
	return []group{s.drainGroup(), s.standingGroup(), s.roundsGroup(), s.lateGroup(), s.pacedGroup(), s.payGroup(), s.pointsGroup(), s.wholeGroup(), s.memoryGroup()}
}

func (o options) measure(ctx context.Context, only *regexp.Regexp) (result Result, err error) {
	began := time.Now()
	z := o.size()
	s, err := newStand(ctx, o.Dir, o.Dir+"/bin", z)
	defer func() { err = errors.Join(err, s.stop()) }()
	if err != nil {
		return result, err
	}
	result = Result{At: began, Commit: commit(ctx), Events: z.events, Bytes: s.events.meanBytes, Runs: z.runs,
		Only: o.Only, Full: o.Only == "" && z == fullSize()}
	if result.Machine, err = s.describe(ctx); err != nil {
		return result, err
	}
	ends := began
	for _, g := range s.groups() {
		ends = ends.Add(time.Duration(float64(o.Within) * g.share / 100))
		cells, broken := g.measure(ctx, z.runs, ends, only, os.Stderr)
		result.Cells = append(result.Cells, cells...)
		result.Verdicts = judge(result.Cells, bounds)
		result.Took = time.Since(began).Round(time.Second).String()
		if broken != nil {
			result.Ended = fmt.Sprintf("in %q: %v", g.title, broken)
		}
		if len(cells) > 0 { // after each group: an interruption must not cost the hour before it
			broken = errors.Join(broken, result.save(o.JSON))
		}
		if broken != nil {
			return result, broken
		}
	}
	if len(result.Cells) == 0 {
		return result, fmt.Errorf("no cell matches %q; see --list", o.Only)
	}
	return result, nil
}
