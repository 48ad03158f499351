package messaging

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// ConsumerConfig tunes a [Consumer]. The zero value works.
type ConsumerConfig struct {
	// Replica tells the processes of one consumer apart.
	// Defaults to host name, process id and a random part.
	Replica string

	// Group is the most events that share one transaction. More is faster
	// until a transaction holds locks for too long. Defaults to 1000.
	Group int

	// Lease is how long the active replica keeps its place without renewing.
	// Defaults to 10 s.
	Lease time.Duration

	// HandlerTimeout bounds one transaction with all its handlers. A group
	// that exceeds it is split, so that one slow event costs only itself.
	// Defaults to 10 s.
	HandlerTimeout time.Duration

	// RetryDelay is the first delay before an event that failed is tried
	// again; it doubles with each attempt, with full jitter. Defaults to 500 ms.
	RetryDelay time.Duration

	// RetryDelayMax bounds that delay. Defaults to 2 min.
	RetryDelayMax time.Duration

	// RetryAttempts bounds the attempts, and RetryBudget the sum of the
	// delays, after which an event becomes a dead letter. Time in which the
	// database is away counts in neither. Default to 20, and to 1 h.
	RetryAttempts int
	RetryBudget   time.Duration

	// CircuitAfter is how many events in a row, without as many that succeed,
	// may fail for the first time with one cause before the consumer stands
	// still for CircuitPause, and twice as long each time that nothing has got
	// better, up to RetryDelayMax. All pauses of one trouble have the bound
	// RetryBudget. Default to 20, and to 5 s.
	CircuitAfter int
	CircuitPause time.Duration

	// RetryPoll is how often due retries are looked for. Defaults to 200 ms.
	RetryPoll time.Duration

	// GapWait is how long a missing version is waited for before its owner is
	// asked. Defaults to 2 s.
	GapWait time.Duration

	// Backfill asks the owner for missing versions. Without it they can only
	// come by themselves. See [Consumer.EveryVersion].
	Backfill Backfill

	// MaxParked and MaxParkedPerAggregate bound the unresolved rows of this
	// consumer. Above them, events that would be parked stay with the broker.
	// Default to 100 000, and to 1000.
	MaxParked             int
	MaxParkedPerAggregate int

	// Owner is who looks after this consumer's dead letters, and Runbook where
	// they read what to do. Both are shown with every dead letter.
	Owner   string
	Runbook string

	// DeadLetterSLA is the time within which a dead letter must be dealt with;
	// later it is overdue, which is an alarm. Defaults to 4 h.
	DeadLetterSLA time.Duration

	// ExternalEffects says that applying an event leads to something outside
	// the database, such as a mail. A replay then needs to allow it.
	ExternalEffects bool

	// ReplayApproval is the largest replay that one person may start alone.
	// Defaults to 1000 events.
	ReplayApproval int

	// PayloadKeys seal the payloads of recorded failures. Defaults to none.
	PayloadKeys *PayloadKeys

	// TraceParent is how the span of a group refers to the traces in which its
	// events were made: "link", or "child" to be also a part of the first one's,
	// which shows the whole path as one waterfall. Replays are linked in any
	// case. Defaults to "link".
	TraceParent string

	// Logger defaults to slog.Default.
	Logger *slog.Logger

	// Meters and Tracers default to the global OpenTelemetry providers.
	Meters  metric.MeterProvider
	Tracers trace.TracerProvider
}

// traceChild is the value of [ConsumerConfig.TraceParent] that is not the default.
const traceChild = "child"

func (c ConsumerConfig) withDefaults(name string) ConsumerConfig {
	if c.Replica == "" {
		host, _ := os.Hostname()
		c.Replica = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
	}
	setDefault(&c.Group, 1000)
	setDefault(&c.Lease, 10*time.Second)
	setDefault(&c.HandlerTimeout, 10*time.Second)
	setDefault(&c.RetryDelay, 500*time.Millisecond)
	setDefault(&c.RetryDelayMax, 2*time.Minute)
	setDefault(&c.RetryAttempts, 20)
	setDefault(&c.RetryBudget, time.Hour)
	setDefault(&c.CircuitAfter, 20)
	setDefault(&c.CircuitPause, 5*time.Second)
	setDefault(&c.RetryPoll, 200*time.Millisecond)
	setDefault(&c.GapWait, 2*time.Second)
	setDefault(&c.MaxParked, 100_000)
	setDefault(&c.MaxParkedPerAggregate, 1000)
	setDefault(&c.DeadLetterSLA, 4*time.Hour)
	setDefault(&c.ReplayApproval, 1000)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Meters == nil {
		c.Meters = otel.GetMeterProvider()
	}
	if c.Tracers == nil {
		c.Tracers = otel.GetTracerProvider()
	}
	c.Logger = c.Logger.With("consumer", name)
	return c
}

// Check reports settings with which a consumer could not do its work. Zero
// fields mean their defaults.
func (c ConsumerConfig) Check() error {
	c = c.withDefaults("")
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"Group", int64(c.Group)}, {"Lease", int64(c.Lease)}, {"HandlerTimeout", int64(c.HandlerTimeout)}, {"RetryDelay", int64(c.RetryDelay)},
		{"RetryDelayMax", int64(c.RetryDelayMax)}, {"RetryAttempts", int64(c.RetryAttempts)}, {"RetryBudget", int64(c.RetryBudget)},
		{"RetryPoll", int64(c.RetryPoll)}, {"CircuitAfter", int64(c.CircuitAfter)}, {"CircuitPause", int64(c.CircuitPause)},
		{"GapWait", int64(c.GapWait)}, {"MaxParked", int64(c.MaxParked)}, {"MaxParkedPerAggregate", int64(c.MaxParkedPerAggregate)},
		{"DeadLetterSLA", int64(c.DeadLetterSLA)}, {"ReplayApproval", int64(c.ReplayApproval)},
	} {
		if field.value < 0 {
			return fmt.Errorf("%s is negative", field.name)
		}
	}
	switch {
	case c.Group > maxGroup:
		return fmt.Errorf("a group of %d events is above %d: its transaction would hold locks for too long", c.Group, maxGroup)
	case c.Lease < 200*time.Millisecond:
		return fmt.Errorf("a lease of %v is below 200 ms: it would end while its holder works", c.Lease)
	case c.HandlerTimeout < 10*time.Millisecond:
		return fmt.Errorf("a handler timeout of %v is below 10 ms: no transaction would end in time", c.HandlerTimeout)
	case c.RetryDelay > c.RetryDelayMax:
		return fmt.Errorf("the first delay of a retry, %v, is above the longest, %v", c.RetryDelay, c.RetryDelayMax)
	case c.TraceParent != "" && c.TraceParent != "link" && c.TraceParent != traceChild:
		return fmt.Errorf("trace parent %q is neither link nor child", c.TraceParent)
	}
	return nil
}

// maxGroup is the largest [ConsumerConfig.Group].
const maxGroup = 10_000

func (c ConsumerConfig) schedule() schedule {
	return schedule{first: c.RetryDelay, longest: c.RetryDelayMax, attempts: c.RetryAttempts, budget: c.RetryBudget}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
