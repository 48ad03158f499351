package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
)

// Config configures a [Broker].
type Config struct {
	// URL is one address or several, separated by commas, and behind them the
	// files with which to prove who this is: nats://a:4222?nkey=FILE, see
	// auth.go. It may hold credentials, so it is never logged. Required.
	URL string

	// Name identifies the client to the server and to its administrators. It
	// is also part of its inbox, so that permissions can keep one service from
	// reading the answers to another: a client named points receives on
	// _INBOX_points.> and nowhere else. Letters, digits, '-' and '_'. Required.
	Name string

	// Stream holds the events. Defaults to "EVENTS".
	Stream string

	// AttemptTimeout bounds one attempt to publish, within the caller's
	// deadline. Defaults to 5 s.
	AttemptTimeout time.Duration

	// Single publishes each message for itself and not in atomic batches. It is
	// for servers that sync lazily, as they do unless told otherwise: there a
	// batch saves no sync, and what remains is the cost of staging it, half as
	// much again on the server. With sync_interval: always it is ten times
	// slower.
	Single bool

	// Prefetch is how many messages a subscription takes from the server
	// before they are fetched. It must be below the durable's MaxAckPending.
	// Defaults to 2000, two full groups of a consumer.
	Prefetch int

	// PullExpiry is how long the server keeps a request for messages open. It
	// sends a heartbeat every quarter of that time; when two fail to come, the
	// subscription counts as stalled and is renewed. Defaults to 10 s.
	PullExpiry time.Duration

	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

var clientName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c Config) withDefaults() (Config, error) {
	c.Stream = cmp.Or(c.Stream, DefaultStream)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, 5*time.Second)
	c.Prefetch = cmp.Or(c.Prefetch, 2000)
	c.PullExpiry = cmp.Or(c.PullExpiry, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	switch {
	case !clientName.MatchString(c.Name):
		return c, fmt.Errorf("name %q is not made of 1 to 64 letters, digits, '-' and '_'", c.Name)
	case !clientName.MatchString(c.Stream):
		return c, fmt.Errorf("stream name %q is not made of 1 to 64 letters, digits, '-' and '_'", c.Stream)
	case c.AttemptTimeout < 0 || c.Prefetch < 1:
		return c, errors.New("attempt timeout and prefetch must be positive")
	case c.PullExpiry < 100*time.Millisecond:
		return c, fmt.Errorf("pull expiry of %v is below 100 ms", c.PullExpiry)
	}
	return c, nil
}

// How long a dead peer goes unnoticed: a socket that takes nothing more fails
// a write after writeTimeout, a silent one fails after two unanswered pings.
// The client's own defaults are one minute and four.
const (
	writeTimeout = 5 * time.Second
	pingInterval = 10 * time.Second
	drainTimeout = 5 * time.Second
)

// A Broker is one connection to NATS. It implements [messaging.Publisher] and
// [messaging.Subscriber], reconnects for ever and is safe for concurrent use.
type Broker struct {
	cfg     Config
	nc      *nats.Conn
	js      jetstream.JetStream
	replies *replies
	closed  chan struct{} // when the connection is gone for good
	wakers  sync.WaitGroup

	mu        sync.Mutex
	lost      chan struct{} // closed when the present TCP connection breaks
	failure   report        // the last error that was logged
	violation report        // the last thing that the server did not permit
	sources   map[*source]struct{}
	closing   bool
}

var (
	_ messaging.Publisher  = (*Broker)(nil)
	_ messaging.Subscriber = (*Broker)(nil)
)

// A report is an error that belongs to no call. That something is not
// permitted comes this way: the request itself just gets no answer.
type report struct {
	err error
	at  time.Time
}

// Connect returns a broker for the configuration. It does not wait for the
// server: a service may start first, and is not ready until [Broker.Ready]
// says so. ctx bounds the first attempt only.
func Connect(ctx context.Context, cfg Config) (*Broker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, closed: make(chan struct{}), lost: make(chan struct{}), sources: map[*source]struct{}{}}
	to, err := parseAddress(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("connect to nats as %s: %w", cfg.Name, err)
	}
	b.nc, err = nats.Connect(to.servers, append(to.options, b.options(ctx)...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to nats as %s: %w", cfg.Name, withoutURL(err))
	}
	b.replies = newReplies(b.nc, cfg.Stream)
	b.js, err = jetstream.New(b.nc)
	if err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	return b, nil
}

// withoutURL keeps credentials out of the message of an address that cannot be
// parsed.
func withoutURL(err error) error {
	var parsing *url.Error
	if errors.As(err, &parsing) {
		return parsing.Err
	}
	return err
}

func (b *Broker) options(ctx context.Context) []nats.Option {
	timeout := 2 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	return []nats.Option{
		nats.Name(b.cfg.Name),
		nats.CustomInboxPrefix("_INBOX_" + b.cfg.Name),
		nats.Timeout(timeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),      // by default the client gives up for ever after two minutes
		nats.IgnoreAuthErrorAbort(), // and when it is refused twice: a server that knows nobody for a moment would end every service
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 250*time.Millisecond),
		nats.ReconnectBufSize(-1), // nothing is kept to surface later, under a lease that has ended
		nats.FlusherTimeout(writeTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.DrainTimeout(drainTimeout),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.disconnected(err) }),
		nats.ReconnectHandler(func(*nats.Conn) { b.reconnected() }),
		nats.ClosedHandler(func(*nats.Conn) { b.connectionClosed() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.failed(err) }),
	}
}

// Ready makes a round trip to the server. It fails while the connection is
// down, and says so if that is because the server refuses the credentials:
// they may be right again in a moment, or never.
func (b *Broker) Ready(ctx context.Context) error {
	if b.nc.IsClosed() {
		return unavailable(fmt.Errorf("closed for good, last error: %v", b.nc.LastError()))
	}
	if !b.nc.IsConnected() {
		if last := b.nc.LastError(); last != nil {
			return unavailable(fmt.Errorf("%w: %w", errNotConnected, last))
		}
		return unavailable(errNotConnected)
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.AttemptTimeout)
	defer cancel()
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

var errNotConnected = errors.New("not connected")

// Close gives fetched-ahead messages back, sends what is buffered and closes
// the connection. It takes at most a few seconds; closing twice is allowed.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closing = true
	sources := make([]*source, 0, len(b.sources))
	for s := range b.sources {
		sources = append(sources, s)
	}
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range sources {
		wg.Go(s.Close)
	}
	wg.Wait()
	if err := b.nc.Drain(); err != nil { // not connected: there is nothing to drain
		b.nc.Close()
	}
	select {
	case <-b.closed:
	case <-time.After(drainTimeout + time.Second):
		b.nc.Close()
		<-b.closed
	}
	b.wakers.Wait()
}

func (b *Broker) disconnected(err error) {
	b.mu.Lock()
	close(b.lost)
	b.lost = make(chan struct{})
	closing := b.closing
	b.mu.Unlock()
	if !closing {
		b.cfg.Logger.Warn("nats connection lost", "client", b.cfg.Name, "error", err)
	}
}

func (b *Broker) reconnected() {
	b.cfg.Logger.Info("nats connection restored", "client", b.cfg.Name)
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.sources {
		s.disturbed() // requests for messages do not outlive a connection
	}
}

func (b *Broker) connectionClosed() {
	close(b.closed)
	b.mu.Lock()
	closing := b.closing
	b.mu.Unlock()
	if !closing {
		b.cfg.Logger.Error("nats connection closed for good", "client", b.cfg.Name, "error", b.nc.LastError())
	}
}

// failed hears of errors that belong to no call.
func (b *Broker) failed(err error) {
	b.mu.Lock()
	news := b.failure.err == nil || b.failure.err.Error() != err.Error() || time.Since(b.failure.at) > time.Minute
	if news {
		b.failure = report{err: err, at: time.Now()}
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		b.violation = report{err: err, at: time.Now()}
	}
	b.mu.Unlock()
	if news { // a hint that is not permitted fails a thousand times a second
		b.cfg.Logger.Error("nats reports an error", "client", b.cfg.Name, "error", err)
	}
}

// violationSince returns what was not permitted after start, or nil.
func (b *Broker) violationSince(start time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.violation.at.Before(start) {
		return nil
	}
	return b.violation.err
}

var errBroken = errors.New("the connection broke before the answer")

// connection returns a channel that is closed when the present TCP connection
// breaks.
func (b *Broker) connection() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// whileConnected returns a context that also ends when the TCP connection
// breaks, with errBroken as its cause: an answer that was on its way is then
// lost, and waiting for the deadline would only delay the repetition.
func (b *Broker) whileConnected(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	lost := b.connection()
	ctx, stop := context.WithTimeout(ctx, timeout)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-lost:
			cancel(errBroken)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); stop() }
}
