// Package process is what every main shares: flags and environment, logger and
// telemetry, signals, and exit codes.
//
//	func main() {
//		var cfg points.Config // embeds process.Service
//		process.Main("points", "Awards points for paid orders.", &cfg, func(ctx context.Context) error {
//			return points.Run(ctx, cfg)
//		})
//	}
//
// The exit code is 0 after a clean stop, 1 after an error (the last line on
// stderr says which, and what to do about it), 2 for flags or variables that
// cannot be used.
//
// A program is asked to stop with SIGTERM or SIGINT. A second signal ends it at
// once, and so does a stop that takes longer than --stop-within: that is safe
// at any moment, it only leaves more to redeliver.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"orderpaid/platform/telemetry"
)

// The exit codes of [Main].
const (
	exitClean = 0
	exitError = 1
	exitUsage = 2
)

// flushTimeout bounds the sending of the last spans.
const flushTimeout = 3 * time.Second

// common is what every program understands, whatever its own config is.
type common struct {
	LogLevel       slog.Level       `env:"LOG_LEVEL" default:"info" help:"Least level that is logged: debug, info, warn or error."`
	StopWithin     time.Duration    `env:"STOP_WITHIN" default:"25s" help:"How long a stop may take before the program exits hard. Orchestrators kill after 30s."`
	ExitWithParent bool             `env:"EXIT_WITH_PARENT" hidden:"" help:"Stop when stdin ends, as it does when the parent process dies."`
	Version        kong.VersionFlag `env:"-" help:"Print the version and exit."`
}

// Main runs a program and does not return.
//
// cfg is a pointer to a struct with kong tags; each of its fields is a flag
// and an environment variable (--database-url, DATABASE_URL), and --help shows
// both. It is filled in before run is called, and logged with its [Secret]
// fields masked. run must return soon after ctx is done, and may return ctx's
// error then.
func Main(name, about string, cfg any, run func(ctx context.Context) error) {
	os.Exit(start(name, about, cfg, run))
}

func start(name, about string, cfg any, run func(ctx context.Context) error) int {
	if len(os.Args) > 1 && os.Args[1] == healthCommand {
		return health(name, os.Args[2:])
	}
	var own common
	parser := newParser(name, about, cfg, &own)
	err := readSecretFiles(parser.Model.Flags)
	if err == nil {
		_, err = parser.Parse(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s; see %s --help\n", name, credentials.ReplaceAllString(err.Error(), "***"), name)
		return exitUsage
	}
	if err := supervise(name, parser, own, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return exitError
	}
	return exitClean
}

// credentials finds what a complaint about a flag must not repeat: kong quotes
// the text that it cannot read, and that may be an address with a password.
var credentials = regexp.MustCompile(`//[^\s"]*@|password=[^\s"]+`)

// newParser panics if cfg's tags are wrong: that is a programming error, and
// every start finds it.
func newParser(name, about string, cfg any, own *common) *kong.Kong {
	return kong.Must(cfg,
		kong.Name(name),
		kong.Description(about),
		kong.Embed(own),
		kong.DefaultEnvars(""),
		kong.Vars{"version": Version(), "http_addr": "127.0.0.1:8080", "ops_addr": "127.0.0.1:9080"},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
}

// supervise runs run between the start and the end of everything around it.
func supervise(name string, parser *kong.Kong, own common, run func(context.Context) error) (err error) {
	ctx, cancel := stopContext(own)
	defer cancel()

	shutdown, err := telemetry.Start(ctx, telemetry.Config{Service: name, Version: Version(), LogLevel: own.LogLevel})
	if err != nil {
		return err
	}
	defer func() {
		flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if flushErr := shutdown(flushCtx); flushErr != nil {
			slog.Warn("the last spans were not sent", "error", flushErr)
		}
	}()

	slog.Info("starting", "version", Version(), "config", describe(parser.Model.Flags))
	err = run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // the echo of the stop that was asked for
	}
	if err == nil {
		slog.Info("stopped")
	}
	return err
}

// stopContext returns a context that is done when the program should stop:
// at the first signal or, on request, when stdin ends.
func stopContext(own common) (context.Context, context.CancelFunc) {
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() {
		release() // from here on a signal has its default effect: the second one ends the process
		time.AfterFunc(own.StopWithin, func() {
			fmt.Fprintf(os.Stderr, "did not stop within %s (--stop-within): exiting hard\n", own.StopWithin)
			os.Exit(exitError)
		})
	})
	if own.ExitWithParent {
		// Nobody can interrupt a read of stdin, so nobody waits for this
		// goroutine: it ends with the process.
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			slog.Info("stdin has ended: the parent process is gone")
			cancel()
		}()
	}
	return ctx, cancel
}

// describe lists the effective configuration. Secrets mask themselves.
func describe(flags []*kong.Flag) slog.Value {
	var attrs []slog.Attr
	for _, flag := range flags {
		if flag.Name == "help" || flag.Name == "version" {
			continue
		}
		attrs = append(attrs, slog.String(flag.Name, fmt.Sprint(flag.Target.Interface())))
	}
	return slog.GroupValue(attrs...)
}

// Version returns what the program was built from: the module's version, or
// the commit, with "+dirty" if the tree had changes, or "unknown".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return revision + dirty
}
