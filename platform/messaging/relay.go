package messaging

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"orderpaid/platform/faults"
)

// RelayConfig tunes a [Relay]. The zero value works.
type RelayConfig struct {
	// Name tells relays apart; two that share a name would share leases.
	// Defaults to host name, process id and a random part.
	Name string

	// Database names the outbox in logs and metrics. Defaults to the name of
	// the database that the pool connects to.
	Database string

	// Lease is how long a shard stays with a relay that has stopped renewing.
	// It must be longer than the longest pause after which such a relay should
	// be thought dead. Defaults to 10 s; within 1 s and 2 min.
	Lease time.Duration

	// Batch is the most that one lane publishes at once. Defaults to 1000,
	// which is also the most that JetStream takes in one atomic batch.
	Batch int

	// PublishTimeout bounds one batch; what has no answer by then is unknown
	// and is sent again. Defaults to Lease / 2.
	PublishTimeout time.Duration

	// Poll is the longest that a committed event waits when every wake-up is
	// lost. Defaults to 250 ms.
	Poll time.Duration

	// Wake carries hints that something was committed, with the shards that it
	// went to. Defaults to polling alone.
	Wake <-chan ShardSet

	// Logger defaults to slog.Default.
	Logger *slog.Logger

	// TraceParent is how the span of a batch refers to the traces in which its
	// events were made, as in [ConsumerConfig]. Defaults to "link".
	TraceParent string

	// Meters and Tracers default to the global OpenTelemetry providers.
	Meters  metric.MeterProvider
	Tracers trace.TracerProvider
}

func (c RelayConfig) withDefaults(pool *pgxpool.Pool) (RelayConfig, error) {
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
	}
	if c.Database == "" {
		c.Database = pool.Config().ConnConfig.Database
	}
	if c.Lease == 0 {
		c.Lease = 10 * time.Second
	}
	if c.Batch == 0 {
		c.Batch = 1000
	}
	if c.PublishTimeout == 0 {
		c.PublishTimeout = c.Lease / 2
	}
	if c.Poll == 0 {
		c.Poll = 250 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Meters == nil {
		c.Meters = otel.GetMeterProvider()
	}
	if c.Tracers == nil {
		c.Tracers = otel.GetTracerProvider()
	}
	switch {
	case c.Lease < time.Second || c.Lease > longestLease:
		return c, fmt.Errorf("relay: lease of %v is not within 1 s and %v", c.Lease, longestLease)
	case c.Batch < 1 || c.Batch > 1000:
		return c, fmt.Errorf("relay: batch of %d is not within 1 and 1000", c.Batch)
	case c.PublishTimeout < 0 || c.PublishTimeout >= c.Lease:
		return c, fmt.Errorf("relay: publish timeout of %v is not below the lease of %v", c.PublishTimeout, c.Lease)
	case c.Poll < 0: // a lane would ask without a pause
		return c, fmt.Errorf("relay: poll of %v is negative", c.Poll)
	case c.TraceParent != "" && c.TraceParent != "link" && c.TraceParent != traceChild:
		return c, fmt.Errorf("relay: trace parent %q is neither link nor child", c.TraceParent)
	}
	c.Logger = c.Logger.With("relay", c.Name, "database", c.Database)
	return c, nil
}

// A Relay moves staged events from one database to the broker, in order per
// aggregate, at least once. Any number of relays may serve one database: they
// divide its shards among themselves.
//
// Its crash windows, and what closes them:
//
//	before the publish    the row is pending; whoever holds the shard next publishes it
//	publish, no answer    the outcome is unknown; the same id goes again
//	ack, before the mark  the row is pending; it goes again under the same id: a
//	                      duplicate, dropped by the broker's window or by the inbox
//	mark, before the next evidence and queue changed in one statement: nothing is half done
//
// Pattern: https://microservices.io/patterns/data/polling-publisher.html, with
// leased shards instead of claimed rows; docs/adr says why.
type Relay struct {
	pool     *pgxpool.Pool
	pub      Publisher
	cfg      RelayConfig
	leases   *shardLeases
	meters   relayMeters
	tracing  tracing
	wake     [lanes]chan struct{}
	sessions chan struct{} // as many as the pool has connections; for the lanes
}

// NewRelay returns a relay for the database of pool, which must have room for
// two connections at least and should serve nothing else.
func NewRelay(pool *pgxpool.Pool, pub Publisher, cfg RelayConfig) (*Relay, error) {
	cfg, err := cfg.withDefaults(pool)
	if err != nil {
		return nil, err
	}
	meters, err := newRelayMeters(cfg.Meters, cfg.Database)
	if err != nil {
		return nil, err
	}
	r := &Relay{pool: pool, pub: pub, cfg: cfg, meters: meters, tracing: newTracing(cfg.Tracers, cfg.TraceParent),
		leases: newShardLeases(pool, cfg.Name, cfg.Lease, cfg.Lease/5), sessions: make(chan struct{}, pool.Config().MaxConns)}
	for lane := range r.wake {
		r.wake[lane] = make(chan struct{}, 1)
	}
	return r, nil
}

// Run relays until ctx is done. It then finishes the batches that are on the
// way, gives its shards back and returns nil. It never gives up on its own:
// while the database or the broker is away it waits, with backoff.
func (r *Relay) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() { r.runLane(ctx, lane) })
	}
	wg.Go(func() { r.spreadWakes(ctx) })
	r.leases.run(ctx, func(err error) { r.cfg.Logger.Warn("relay", "error", err) })
	wg.Wait()
	return nil
}

// spreadWakes hands each hint to the lanes that hold one of its shards, and
// drops it where one waits already. Of all lanes of all relays that is one for
// a single event; to wake the others would cost more than the publishing.
func (r *Relay) spreadWakes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case hint, open := <-r.cfg.Wake:
			if !open {
				return
			}
			for lane, held := range r.leases.holding() {
				if hint&held == 0 {
					continue
				}
				select {
				case r.wake[lane] <- struct{}{}:
				default:
				}
			}
		}
	}
}

// runLane publishes one quarter of the shards, batch after batch.
func (r *Relay) runLane(ctx context.Context, lane int) {
	l := &relayLane{Relay: r, lane: lane}
	soon := time.Millisecond
	if r.cfg.Wake != nil { // what is committed from now on will be told
		soon = r.cfg.Poll / 4
	}
	idle, failures := soon, 0
	for ctx.Err() == nil {
		published, err := l.step(context.WithoutCancel(ctx))
		var pause time.Duration
		switch {
		case err != nil:
			pause = backoff(failures, 50*time.Millisecond, 5*time.Second)
			failures++
			if failures == 1 || failures%10 == 0 { // an outage is one story, not a flood
				r.cfg.Logger.Warn("relay is held up", "lane", lane, "failures", failures, "error", err)
			}
		case published > 0 && (r.cfg.Wake == nil || published > l.asked/2):
			idle, failures = soon, 0
			continue
		default: // caught up: look again soon, then less and less often
			if published > 0 {
				idle = soon
			}
			failures = 0
			pause = idle
			idle = min(idle*2, r.cfg.Poll)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-r.wakeUnless(err != nil, lane):
		}
	}
}

// wakeUnless keeps a stream of commits from turning a backoff into a busy loop.
func (r *Relay) wakeUnless(failing bool, lane int) <-chan struct{} {
	if failing {
		return nil
	}
	return r.wake[lane]
}

// relayLane is the state of one lane between its batches.
type relayLane struct {
	*Relay
	lane     int
	conn     *pgxpool.Conn // of the present statements
	batch    int           // how many events the next batch may hold; 0 before the first
	asked    int           // how many the last one was allowed to hold
	full     int           // how many batches in a row were at least half full
	window   int           // how many rows are read per shard; grows while few shards have many
	turn     int           // rotates the shards, so that no full shard starves those behind it
	released time.Time     // when held rows were last looked at
	looked   time.Time     // when the queue was last seen to lack no fact
}

// pendingRow is one row of the queue with what is needed to publish it.
type pendingRow struct {
	Shard         int16
	ID            int64
	EventID       uuid.UUID
	Attempts      int
	AggregateType string
	AggregateID   string
	Subject       string
	Payload       []byte
	TraceParent   string
	CreatedAt     time.Time
	Held          bool // an earlier event of its aggregate is held
}

// databaseTimeout bounds the statements around one publish.
const databaseTimeout = 10 * time.Second

// step publishes and marks one batch. It returns how many events moved.
func (l *relayLane) step(ctx context.Context) (moved int, err error) {
	batch, err := l.leases.begin(ctx, l.lane)
	defer batch.end()
	if err != nil || len(batch.shards) == 0 {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout+l.cfg.PublishTimeout)
	defer cancel()
	began := time.Now()
	var rows []pendingRow
	err = l.inSession(ctx, func() (err error) {
		if err = l.releaseDue(ctx, batch); err != nil {
			return err
		}
		if err = l.setLostAside(ctx, batch); err == nil {
			rows, err = l.read(ctx, batch.shards)
		}
		return err
	})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	ctx, span := l.publishing(ctx, rows)
	defer span.End()
	faults.Hit("relay.before_publish")
	receipts := l.publish(ctx, rows, batch.until)
	defer func() { l.keepPace(receipts, time.Since(began)) }()
	err = l.inSession(ctx, func() (err error) {
		moved, err = l.settle(ctx, batch, rows, receipts)
		return err
	})
	return moved, err
}

// sqlPinPlans makes the planner use the indexes whatever the statistics say.
// A plan cached while the queue was empty scans the outbox for each batch:
// 384 ms instead of 4 ms, measured, until the connection ends. Or it collects
// and sorts all pending rows of a shard, by bitmap, for the few that it takes.
const sqlPinPlans = `SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off`

// inSession runs statements on a session that is taken for them alone: not for
// the life of the lane, and not while the broker is waited for. So two sessions
// carry all lanes and the leases, and each costs the server about 4 MB. After
// an error the session is ended: whatever was wrong with it, the next step
// begins with another.
//
// Lanes wait for their turn here and not for the pool: so the renewal of the
// leases, which asks the pool, stands behind one statement and not behind those
// of all lanes.
func (l *relayLane) inSession(ctx context.Context, statements func() error) error {
	select {
	case l.sessions <- struct{}{}:
		defer func() { <-l.sessions }()
	case <-ctx.Done():
		return fmt.Errorf("connect: %w", ctx.Err())
	}
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := pinPlans(ctx, conn.Conn()); err != nil {
		conn.Release()
		return err
	}
	l.conn = conn
	err = statements()
	l.conn = nil
	if err == nil {
		conn.Release()
		return nil
	}
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Hijack().Close(closing) // it is thrown away
	return err
}

// pinPlans does so once in the life of a session.
func pinPlans(ctx context.Context, conn *pgx.Conn) error {
	const pinned = "orderpaid plans pinned"
	about := conn.PgConn().CustomData()
	if about[pinned] != nil {
		return nil
	}
	if _, err := conn.Exec(ctx, sqlPinPlans); err != nil {
		return fmt.Errorf("pin plans: %w", err)
	}
	about[pinned] = true
	return nil
}

// publish sends the rows that are not held and returns a receipt for each row.
// No answer is waited for beyond the end of the lease.
func (l *relayLane) publish(ctx context.Context, rows []pendingRow, until time.Time) []Receipt {
	ctx, cancel := context.WithDeadline(ctx, earlier(until, time.Now().Add(l.cfg.PublishTimeout)))
	defer cancel()
	receipts := make([]Receipt, len(rows))
	messages := make([]Message, 0, len(rows))
	index := make([]int, 0, len(rows))
	for i := range rows {
		row := &rows[i]
		if row.Held {
			receipts[i].Err = ErrBehind
			continue
		}
		messages = append(messages, Message{ID: row.EventID, Key: row.AggregateType + "/" + row.AggregateID,
			Subject: row.Subject, Data: row.Payload, TraceParent: row.TraceParent})
		index = append(index, i)
	}
	if len(messages) == 0 {
		return receipts
	}
	began := time.Now()
	for n, receipt := range l.pub.Publish(ctx, messages) {
		receipts[index[n]] = receipt
	}
	l.meters.called(ctx, messages, time.Since(began))
	return receipts
}
