package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"orderpaid/platform/faults"
	"orderpaid/platform/messaging"
	"orderpaid/platform/postgres"
)

// DeliveryConfig configures a [Delivery]. The zero value works, except for From.
type DeliveryConfig struct {
	// From is the sender's address; its domain is that of the Message-IDs.
	// Required.
	From string

	// ContactDomain gives users without a contact the address
	// <user id>@<ContactDomain>. For demonstrations. Empty: they have none.
	ContactDomain string

	// Concurrency is how many mails are on their way at the same time. It is
	// also how many a crash can leave without an answer. Defaults to 8.
	Concurrency int

	// Policy bounds what is done for one mail. Defaults to 12 attempts from 5 s
	// to 1 h apart. UnknownRepeats has no default: zero is a choice.
	Policy Policy

	// Lease is how long a sender holds a task. When it is over, the sender is
	// taken for dead and the mail for unanswered, so it must be longer than
	// the mailer's timeout. Defaults to the default timeout and 5 s.
	Lease time.Duration

	// TraceParent is how the span of a mail refers to the trace of the payment,
	// as in [messaging.ConsumerConfig]. Defaults to "link".
	TraceParent string

	// Meters, Tracers and Logger default to the global OpenTelemetry providers
	// and to slog.Default.
	Meters  metric.MeterProvider
	Tracers trace.TracerProvider
	Logger  *slog.Logger
}

func (c DeliveryConfig) withDefaults() DeliveryConfig {
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.Policy.MaxAttempts = cmp.Or(c.Policy.MaxAttempts, 12)
	c.Policy.FirstRetry = cmp.Or(c.Policy.FirstRetry, 5*time.Second)
	c.Policy.LastRetry = cmp.Or(c.Policy.LastRetry, time.Hour)
	c.Lease = cmp.Or(c.Lease, defaultSendTimeout+leaseMargin)
	if c.Meters == nil {
		c.Meters = otel.GetMeterProvider()
	}
	if c.Tracers == nil {
		c.Tracers = otel.GetTracerProvider()
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Defaults of sending.
const (
	defaultConcurrency = 8
	defaultSendTimeout = 15 * time.Second
	leaseMargin        = 5 * time.Second // to write down how an attempt ended
	pollInterval       = time.Second     // when nobody calls Wake
)

// A Delivery sends the mails that are queued. Any number of processes may send
// from one database.
//
//	queued ─claim─► sending ─┬─ accepted ─────────────────────────► sent
//	  ▲                      ├─ rejected, or put off too often ───► failed
//	  │                      ├─ no answer, for the second time ───► unknown
//	  └── later, or again ───┘
//
// The windows of a crash, and what comes of each:
//
//	after the claim, before the first byte   ┐ the lease ends, and the mail counts as
//	after the last byte, before the answer   │ unanswered: it is sent again, once, with the
//	after the answer, before it is written   ┘ same Message-ID, and then left to a person
type Delivery struct {
	pool   *pgxpool.Pool
	outbox *messaging.Outbox
	mailer *Mailer
	cfg    DeliveryConfig
	meters deliveryMeters
	health *health
	woken  chan struct{} // holds one element if Wake was called since the last look
}

// NewDelivery returns a delivery on a migrated database. It closes the mailer
// at the end of Run.
func NewDelivery(pool *pgxpool.Pool, outbox *messaging.Outbox, mailer *Mailer, cfg DeliveryConfig) (*Delivery, error) {
	cfg = cfg.withDefaults()
	if err := (Contact{Email: cfg.From, Locale: English}).check(); err != nil {
		return nil, fmt.Errorf("the sender's address cannot be used: %w", err)
	}
	if cfg.Lease <= mailer.cfg.Timeout {
		return nil, fmt.Errorf("a lease of %s would end before a mail that takes %s", cfg.Lease, mailer.cfg.Timeout)
	}
	meters, err := newDeliveryMeters(cfg.Meters)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return &Delivery{
		pool: pool, outbox: outbox, mailer: mailer, cfg: cfg, meters: meters,
		health: &health{logger: cfg.Logger}, woken: make(chan struct{}, 1),
	}, nil
}

// Wake says that there may be something to send. It never blocks.
func (d *Delivery) Wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// Run sends until ctx is done; mails that are on their way then are finished.
func (d *Delivery) Run(ctx context.Context) error {
	defer d.mailer.Close()
	var inFlight sync.WaitGroup
	defer inFlight.Wait()
	slots := make(chan struct{}, d.cfg.Concurrency) // one element for each mail on its way
	for d.health.wait(ctx) {
		free := d.takeSlots(ctx, slots)
		if free == 0 {
			break
		}
		limit := free
		if d.health.failing() { // one mail finds out whether the server is back; all slots are ours, so none is on its way
			limit = 1
		}
		tasks, err := d.claim(ctx, limit)
		for range free - len(tasks) {
			<-slots
		}
		for _, task := range tasks {
			inFlight.Go(func() {
				defer func() { <-slots }()
				d.deliver(ctx, task)
			})
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Logger.Warn("no mails can be claimed", "code", postgres.Code(err), "error", err)
		}
		if len(tasks) < limit {
			d.idle(ctx)
		}
	}
	return nil
}

// claim is not interrupted by a stop: a claim whose answer is lost holds its
// tasks until the lease ends, and then they count as unanswered.
func (d *Delivery) claim(ctx context.Context, limit int) ([]claimed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseMargin)
	defer cancel()
	return claimTasks(ctx, d.pool, limit, d.cfg.Lease)
}

// takeSlots waits for at least one free slot and takes all that are free. In
// an outage it waits for all of them. It returns 0 when ctx is done.
func (d *Delivery) takeSlots(ctx context.Context, slots chan struct{}) (taken int) {
	for taken < cap(slots) {
		if taken > 0 && !d.health.failing() {
			select {
			case slots <- struct{}{}:
				taken++
				continue
			default:
				return taken
			}
		}
		select {
		case slots <- struct{}{}:
			taken++
		case <-ctx.Done():
			return 0
		}
	}
	return taken
}

// idle waits until somebody calls Wake, or for the time after which a mail may
// have become due, or was queued by another process.
func (d *Delivery) idle(ctx context.Context) {
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-d.woken:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// deliver brings one claimed task a step further. A stop does not interrupt
// it: half a mail would be an unanswered one.
func (d *Delivery) deliver(ctx context.Context, c claimed) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), time.Now().Add(d.cfg.Lease))
	defer cancel()
	ctx, span := d.cfg.startSpan(ctx, c)
	defer span.End()
	began := time.Now()
	result := d.attempt(ctx, c)
	d.meters.attempt(ctx, result.Outcome, time.Since(began))
	if !c.abandoned {
		d.health.note(result)
	}
	step, err := d.settle(ctx, c, result)
	told(span, result, step)
	switch {
	case errors.Is(err, errTaken): // another sender has settled it, or will
		d.cfg.Logger.Warn("mail was settled by another sender", "notification_id", c.ID, "outcome", result.Outcome)
	case err != nil: // the lease will end, and the mail count as unanswered
		d.cfg.Logger.Error("outcome of a mail was not written down", "notification_id", c.ID, "outcome", result.Outcome, "error", err)
	case step.State != Sent:
		d.cfg.Logger.Info("mail not sent", "notification_id", c.ID, "state", step.State, "code", step.Code,
			"reply", result.Reply, "attempt", step.Attempts, "delay", step.Delay.String(), "error", result.Err)
	}
}

// attempt sends the mail, if it may be sent and there is somebody to send it to.
func (d *Delivery) attempt(ctx context.Context, c claimed) Result {
	if c.abandoned {
		return Result{Outcome: Unanswered}
	}
	to, ok := d.contactOf(c)
	if !ok {
		return Result{Outcome: NoAddress}
	}
	msg, err := compose(c.Task, to, d.cfg.From, d.messageID(c.Task))
	if err != nil {
		return Result{Outcome: Rejected, Err: err}
	}
	faults.Hit("delivery.before_send")
	defer faults.Hit("delivery.after_answer")
	return d.mailer.Send(ctx, msg)
}

func (d *Delivery) contactOf(c claimed) (to Contact, ok bool) {
	switch {
	case c.contact.Email != "":
		return c.contact, true
	case d.cfg.ContactDomain != "":
		return Contact{c.UserID, c.UserID + "@" + d.cfg.ContactDomain, English}, true
	}
	return Contact{}, false
}

// messageID is the same in every attempt: by it a mail server, or a reader,
// can tell a repetition from a second mail.
func (d *Delivery) messageID(t Task) string {
	_, domain, _ := strings.Cut(d.cfg.From, "@")
	return t.ID + "@" + domain
}

// settle writes down what the attempt has made of the task, and states it if
// the task is over. It repeats that for as long as the lease lasts: what the
// server has said must not be lost to a database that is away for a moment.
// A repetition of a commit that had succeeded finds the task settled.
func (d *Delivery) settle(ctx context.Context, c claimed, r Result) (step Step, err error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err = postgres.InTx(ctx, d.pool, func(tx pgx.Tx) error {
			step, err = d.settleOnce(ctx, tx, c, r)
			return err
		})
		if err == nil || errors.Is(err, errTaken) || !sleep(ctx, pause) {
			return step, err
		}
	}
}

func (d *Delivery) settleOnce(ctx context.Context, tx pgx.Tx, c claimed, r Result) (Step, error) {
	step := d.cfg.Policy.Next(c.Task, r.Outcome, rand.Float64())
	if step.State == Failed {
		if err := lockUser(ctx, tx, c.UserID); err != nil {
			return Step{}, err
		}
		now, err := readContact(ctx, tx, c.UserID)
		if err != nil && !errors.Is(err, errNoContact) {
			return Step{}, err
		}
		if now.Email != c.contact.Email { // it came while we were looking elsewhere
			step = d.cfg.Policy.Next(c.Task, Released, 0)
			step.Attempts = 0
		}
	}
	version, at, err := settleTask(ctx, tx, c, step, r.Reply)
	if err != nil || !step.State.Over() {
		return step, err
	}
	return step, d.outbox.Add(ctx, tx, d.statement(c, step, version, at))
}

// statement drafts the event about a task that is over.
func (d *Delivery) statement(c claimed, s Step, version int64, at time.Time) messaging.Draft {
	if s.State == Sent {
		return messaging.New(c.ID, version, NotificationSent{
			NotificationID: c.ID, OrderID: c.OrderID, UserID: c.UserID, Channel: Channel, Template: c.Template,
			MessageID: "<" + d.messageID(c.Task) + ">", SentAt: at,
		}).CausedBy(c.cause)
	}
	return messaging.New(c.ID, version, NotificationFailed{
		NotificationID: c.ID, OrderID: c.OrderID, UserID: c.UserID, Channel: Channel, Template: c.Template,
		Code: s.Code, FailedAt: at,
	}).CausedBy(c.cause)
}

// sleep reports whether d has passed; false means that ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
