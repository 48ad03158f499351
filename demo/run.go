package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Command runs the shop with a load, or checks it.
type Command struct {
	Check  bool          `help:"Unattended: place the orders, wait until all is done, compare the journal with databases, stream and mails, and exit with 0 only if nothing differs."`
	Orders int           `default:"-1" help:"How many orders to place. Defaults to a steady load until Ctrl-C, with --check to 500."`
	Kill   bool          `help:"Kill a relay and the points service with SIGKILL in the middle of the load."`
	Chaos  time.Duration `help:"With --check: kill and freeze every kind of process for so long, PostgreSQL and NATS included, while 120 orders a second are placed." placeholder:"60s"`
	JSON   bool          `name:"json" help:"With --check: print the report as JSON, and everything else on stderr."`
	Rate   int           `default:"-1" help:"Orders begun in a second; 0 for as many as the shop takes. Defaults to 5, with --check to 0."`
	Seed   uint64        `default:"1" help:"Of everything that is drawn. Defaults to 1."`
}

// Help is printed below the flags.
func (Command) Help() string {
	return "Needs no Docker and nothing running. Data, logs and programs are in .orderpaid; a later start continues with them. " +
		"Ctrl-C stops everything.\n\nExample: scripts/demo\n\nExample: scripts/demo --check --orders 500 --kill"
}

// endless, as a number of orders, is a load that lasts until Ctrl-C.
const endless = -1

// An ExitError ends the program with this code and without another word.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Run starts the shop and returns when it is asked to stop, or the check is
// over; by then nothing runs any more.
func (c Command) Run(ctx context.Context) (err error) {
	if c.Orders < 1 && c.Orders != endless {
		return errors.New("--orders must be at least 1")
	}
	if c.Check && c.Orders == endless {
		c.Orders = 500
	}
	if c.Chaos > 0 {
		if !c.Check {
			return errors.New("--chaos goes with --check: what it proves is in the report")
		}
		// The chaos ends the load. Every kind of misfortune comes once, however short it shall be: that may take longer.
		c.Orders, c.Rate = int(max(c.Chaos, 2*time.Minute).Seconds()*chaosRate), chaosRate
	}
	root, err := FindRoot()
	if err != nil {
		return err
	}
	r := &run{Command: c, dir: filepath.Join(root, ".orderpaid"), started: startTime(), screen: newScreen(c.out())}
	r.warm = exists(filepath.Join(r.dir, "webhook-secret"))
	lock, err := lockFolder(r.dir) // before anything of a demo that runs here is touched
	if err != nil {
		return err
	}
	defer lock.Close()
	log, err := r.logToFile()
	if err != nil {
		return err
	}
	defer log.Close()
	r.screen.printf("OrderPaid on this machine; programs, logs and data are in %s", r.dir)
	if os.Getenv(envStarted) != "" {
		r.step("this program", time.Since(r.started)) // scripts/demo has built it
	}
	r.stack, err = Up(ctx, StackConfig{
		Root: root, Bin: filepath.Join(r.dir, "bin"), Dir: r.dir,
		AnyPorts: c.Check, // whoever asks the ports that the README names must not end up in what is compared
		Busy:     c.Chaos > 0, Step: r.step, Notice: r.notice,
	})
	defer func() { err = errors.Join(err, r.down()) }()
	if err != nil {
		return stopped(ctx, err)
	}
	r.introduce()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with ctx
		select {
		case err := <-r.stack.Failed():
			cancel(err)
		case <-ctx.Done():
		}
	}()
	if c.Check {
		err = r.check(ctx)
	} else {
		err = r.show(ctx)
	}
	return stopped(ctx, err)
}

// stopped makes an error that only says that somebody asked to stop into none,
// and one that follows from a child's end into its cause.
func stopped(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// A run is one call of Command.Run.
type run struct {
	Command
	dir     string
	warm    bool // there was data of an earlier start
	started time.Time
	ready   time.Duration // from started until everything was ready
	screen  *screen
	stack   *Stack
	copies  int64 // of mails, that what was done to the shop explains
}

// logToFile keeps what this process's own libraries log off the screen.
func (r *run) logToFile() (*os.File, error) {
	file := filepath.Join(r.dir, "log", "demo.log")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	slog.SetDefault(slog.New(slog.NewJSONHandler(log, nil)))
	return log, nil
}

func (c Command) out() *os.File {
	if c.JSON {
		return os.Stderr
	}
	return os.Stdout
}

func (r *run) step(what string, took time.Duration) {
	r.screen.printf("  %-22s %6.1f s", what, took.Seconds())
}

func (r *run) notice(line string) { r.screen.printf("  ! %s", line) }

func (r *run) down() error {
	r.screen.keep()
	if r.stack.postgres == nil { // nothing was started
		return nil
	}
	r.screen.printf("stopping …")
	if err := r.stack.Down(); err != nil {
		return err
	}
	r.screen.printf("stopped; the data is kept in %s, a new start goes on with it", r.dir)
	return nil
}

// introduce says how the start went and what it costs.
func (r *run) introduce() {
	kind := "cold"
	if r.warm {
		kind = "warm"
	}
	r.ready = time.Since(r.started)
	r.screen.printf("ready %.1f s after a %s start", r.ready.Seconds(), kind)
	if memory, err := r.stack.memory(); err == nil {
		r.screen.printf("memory: %s", memory)
	}
	if lies := r.stack.DataDir(); lies != filepath.Join(r.dir, "postgres") {
		r.screen.printf("PostgreSQL's data lies in %s, because its user cannot enter %s", lies, r.dir)
	}
}

// loadConfig describes the load; each has a journal of its own.
func (r *run) loadConfig(rate int, progress func(int)) LoadConfig {
	if r.Rate >= 0 {
		rate = r.Rate
	}
	name := now().Format("20060102T150405.000") + ".jsonl"
	return LoadConfig{
		OrderURL: r.stack.URL["order"], WebhookSecret: r.stack.WebhookSecret,
		Journal: filepath.Join(r.dir, "journal", name),
		Orders:  r.Orders, Rate: rate, Seed: r.Seed, Progress: progress,
	}
}

// envStarted is when the start began, in seconds since 1970: scripts/demo knows
// it better than this process, because it has built the program first.
const envStarted = "ORDERPAID_STARTED"

func startTime() time.Time {
	if seconds, err := strconv.ParseFloat(os.Getenv(envStarted), 64); err == nil {
		return time.UnixMicro(int64(seconds * 1e6))
	}
	return time.Now()
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
