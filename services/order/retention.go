package order

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
)

// RetentionConfig says how long the service's own database keeps what others
// have sent. The zero value works.
type RetentionConfig struct {
	// Callbacks is how long the bodies of payment callbacks stay. Their ids,
	// results and hashes stay for ever, so that a repetition is known at any
	// age. Defaults to 90 days.
	Callbacks time.Duration

	// Keys is how long idempotency keys stay. A request that is repeated later
	// is a new one. Defaults to 30 days.
	Keys time.Duration
}

// minKeys is more than any client waits before it repeats a request.
const minKeys = 24 * time.Hour

// Check reports settings that would break what clients and the provider rely on.
func (c RetentionConfig) Check() error {
	c = c.withDefaults()
	switch {
	case c.Keys < minKeys:
		return fmt.Errorf("idempotency keys of %v: a client that repeats a request within %v must not order twice", c.Keys, minKeys)
	case c.Callbacks < 0:
		return fmt.Errorf("callbacks of %v: an age is not negative", c.Callbacks)
	}
	return nil
}

func (c RetentionConfig) withDefaults() RetentionConfig {
	const day = 24 * time.Hour
	if c.Callbacks == 0 {
		c.Callbacks = 90 * day
	}
	if c.Keys == 0 {
		c.Keys = 30 * day
	}
	return c
}

// A RetentionReport is what one run did.
type RetentionReport struct {
	Bodies int // of callbacks, erased
	Keys   int // forgotten
}

// Retain erases and forgets what is old, once. It needs the role that owns the
// tables. The body of a callback stays for as long as its exception waits for
// somebody: that person has to see what was announced.
func Retain(ctx context.Context, owner *pgxpool.Pool, cfg RetentionConfig) (report RetentionReport, err error) {
	if err := cfg.Check(); err != nil {
		return report, err
	}
	cfg = cfg.withDefaults()
	if report.Bodies, err = messaging.InBatches(ctx, owner, sqlEraseCallbacks, cfg.Callbacks); err != nil {
		return report, fmt.Errorf("erase bodies of callbacks: %w", err)
	}
	if report.Keys, err = messaging.InBatches(ctx, owner, sqlForgetKeys, cfg.Keys); err != nil {
		return report, fmt.Errorf("forget idempotency keys: %w", err)
	}
	return report, nil
}
