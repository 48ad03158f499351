package shopctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/postgres"
	"orderpaid/platform/process"
	"orderpaid/services/order"
)

// RetentionPrepare makes partitions ahead.
type RetentionPrepare struct {
	Databases
	Months int `default:"12" help:"How many months ahead. Defaults to 12."`
}

// Help is printed below the flags.
func (RetentionPrepare) Help() string {
	return `Events of a month without a partition are refused, and the orders with them. Safe to repeat; the role must own the database.

Example: shopctl retention prepare --database order=postgres://shop_owner@db/shop_order`
}

// Run prepares one database after the other and goes on after an error.
func (c RetentionPrepare) Run(ctx context.Context, out io.Writer) error {
	names, err := c.names()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		pool, err := postgres.Open(ctx, string(c.Databases.Databases[name]), postgres.Config{MaxConns: 1, ApplicationName: "shopctl retention"})
		if err != nil {
			errs = append(errs, fmt.Errorf("database %s: %w", name, err))
			continue
		}
		made, err := messaging.Prepare(ctx, pool, c.Months)
		pool.Close()
		if err != nil {
			errs = append(errs, fmt.Errorf("database %s: %w", name, err))
			continue
		}
		fmt.Fprintf(out, "%s: %d partitions made\n", name, made)
	}
	return errors.Join(errs...)
}

// RetentionDetach takes old partitions off.
type RetentionDetach struct {
	Databases
	Outbox    time.Duration  `default:"2160h" help:"How long published facts stay. Defaults to 2160h, which is 90 days."`
	Inbox     time.Duration  `default:"2160h" help:"How long inboxes remember. Defaults to 2160h."`
	Callbacks time.Duration  `default:"2160h" help:"How long the bodies of payment callbacks stay. Defaults to 2160h."`
	Keys      time.Duration  `default:"720h" help:"How long idempotency keys stay. Defaults to 720h, which is 30 days."`
	Failures  time.Duration  `default:"720h" help:"How long payloads of settled dead letters and ended replays stay. Defaults to 720h, which is 30 days."`
	NATSURL   process.Secret `name:"nats-url" env:"NATS_URL" placeholder:"URL" help:"The broker, to learn how long its stream keeps events: an inbox must remember for longer."`
	StreamAge time.Duration  `default:"168h" help:"The stream's age, where the broker is not asked. Defaults to 168h, which is 7 days."`
}

// Help is printed below the flags.
func (RetentionDetach) Help() string {
	return `Prepares partitions, takes those off whose time is over, and erases old payloads. Nothing is dropped: a detached partition is
a table of its own, to archive or to drop by hand. A partition with an event that is not published stays, however old. Settings
under which an event could be applied twice are refused. The role must own the database. Name all databases with the same
settings: an inbox must remember whatever another service's outbox can publish again.

Example: shopctl retention detach --database points=postgres://shop_owner@db/shop_points`
}

// Run works on one database after the other and goes on after an error.
func (c RetentionDetach) Run(ctx context.Context, out io.Writer) error {
	cfg := messaging.RetentionConfig{Outbox: c.Outbox, Inbox: c.Inbox, Failures: c.Failures, Stream: c.StreamAge}
	if err := (order.RetentionConfig{Callbacks: c.Callbacks, Keys: c.Keys}).Check(); err != nil {
		return err
	}
	if c.NATSURL != "" {
		var err error
		if cfg.Stream, err = streamAge(ctx, c.NATSURL); err != nil {
			return err
		}
	}
	names, err := c.names()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		pool, err := postgres.Open(ctx, string(c.Databases.Databases[name]), postgres.Config{MaxConns: 2, ApplicationName: "shopctl retention"})
		if err != nil {
			errs = append(errs, fmt.Errorf("database %s: %w", name, err))
			continue
		}
		report, err := messaging.Retain(ctx, pool, cfg)
		if err == nil && name == "order" {
			err = retainOrder(ctx, out, pool, order.RetentionConfig{Callbacks: c.Callbacks, Keys: c.Keys})
		}
		pool.Close()
		if err != nil {
			errs = append(errs, fmt.Errorf("database %s: %w", name, err))
		}
		fmt.Fprintln(out, name+": "+retained(report))
	}
	return errors.Join(errs...)
}

// retained says in a line what was done to a database.
func retained(r messaging.RetentionReport) string {
	line := fmt.Sprintf("%d partitions made, %d taken off", r.Prepared, len(r.Detached))
	if len(r.Detached) > 0 {
		line += " (" + strings.Join(r.Detached, " ") + ")"
	}
	line += fmt.Sprintf(", %d payloads erased, %d rows forgotten", r.Erased, r.Forgotten)
	if len(r.Kept) > 0 {
		line += "; kept for what is unfinished or was applied lately: " + strings.Join(r.Kept, " ")
	}
	return line
}

func retainOrder(ctx context.Context, out io.Writer, pool *pgxpool.Pool, cfg order.RetentionConfig) error {
	report, err := order.Retain(ctx, pool, cfg)
	fmt.Fprintf(out, "order: %d bodies of callbacks erased, %d idempotency keys forgotten\n", report.Bodies, report.Keys)
	return err
}

// streamAge asks the broker how long it keeps events. A stream that keeps them
// for ever leaves no age at which an inbox may forget.
func streamAge(ctx context.Context, url process.Secret) (time.Duration, error) {
	broker, err := connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer broker.Close()
	status, err := broker.Status(ctx)
	if err != nil {
		return 0, err
	}
	if status.MaxAge == 0 {
		return 0, errors.New("the stream keeps events for ever: what an inbox forgets could be applied again")
	}
	return status.MaxAge, nil
}
