package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How long the three steps around the caller's function may take. Each has a
// limit of its own, whatever the caller's context allows.
const (
	// beginTimeout includes the wait for a free connection. Without it, code
	// that opens a transaction inside another one hangs as soon as as many
	// of them run as the pool has connections; with it, that is an error
	// that says so and may be retried.
	beginTimeout    = 5 * time.Second
	commitTimeout   = 5 * time.Second
	rollbackTimeout = 5 * time.Second
)

// ErrNotBegun: the transaction could not be begun, so fn was not called. The
// database is away, or every connection of the pool is taken; neither says
// anything about what fn would have done.
var ErrNotBegun = errors.New("begin transaction")

// InTx runs fn in one transaction: committed if fn returns nil, rolled back if
// it returns an error or panics. It does not retry.
//
// The error is fn's own when fn returned one. Otherwise it says how the commit
// ended: with [ErrUnknownOutcome] it may have happened, with any other error
// it has not. The commit has a deadline of its own and is sent even when ctx
// is done by then: a request that was cut off after its last statement is
// either completely done or not at all, and no longer in between.
//
// The tx given to fn also has the method AfterCommit(func()). Its functions
// run in order once the commit is done or may be done; they are for hints that
// may be lost or sent in vain, and must not block. fn must neither commit nor
// roll back tx, must not use it after returning, and must not wait for a
// second connection of the same pool.
func InTx(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	inner, err := begin(ctx, pool)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	}
	committing := false
	defer func() {
		if !committing { // fn returned an error, panicked or ended its goroutine
			rollback(ctx, inner)
		}
	}()

	tx := &ownedTx{namedTx: namedTx{inner}, hooks: new(hooks)}
	if err := fn(tx); err != nil {
		return err
	}
	committing = true
	err = commit(ctx, inner)
	if err == nil || errors.Is(err, ErrUnknownOutcome) {
		tx.hooks.run()
	}
	return err
}

func begin(ctx context.Context, pool *pgxpool.Pool) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	return pool.Begin(ctx) // ctx bounds BEGIN only, not the transaction
}

// rollback frees the connection. Its own error says nothing that the caller
// could use: without a connection the server rolls back by itself.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

func commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	err := tx.Commit(ctx)
	switch {
	case err == nil:
		return nil
	case rolledBack(err):
		return fmt.Errorf("commit: %w", err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
}

// errOwned answers a Commit or Rollback by fn. A transaction that ended inside
// fn would make InTx report on a commit that it did not see.
var errOwned = errors.New("the transaction belongs to InTx: return from its function to end it")

// ownedTx is the transaction as fn sees it.
type ownedTx struct {
	namedTx
	hooks *hooks
}

// AfterCommit registers a hint; see [InTx].
func (tx *ownedTx) AfterCommit(hook func()) { tx.hooks.add(hook) }

func (tx *ownedTx) Commit(context.Context) error   { return errOwned }
func (tx *ownedTx) Rollback(context.Context) error { return errOwned }

// Begin opens a savepoint. Hints from inside one run even if it is rolled
// back: a hint in vain costs nothing, a forgotten one costs latency.
func (tx *ownedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := tx.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepoint{namedTx: namedTx{inner}, hooks: tx.hooks}, nil
}

// savepoint is a nested transaction, which its opener commits or rolls back.
type savepoint struct {
	namedTx
	hooks *hooks
}

func (sp *savepoint) AfterCommit(hook func()) { sp.hooks.add(hook) }

func (sp *savepoint) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := sp.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepoint{namedTx: namedTx{inner}, hooks: sp.hooks}, nil
}

// hooks is shared by a transaction and its savepoints. Like a pgx.Tx it is
// for one goroutine.
type hooks struct{ fns []func() }

func (h *hooks) add(fn func()) { h.fns = append(h.fns, fn) }

func (h *hooks) run() {
	for _, fn := range h.fns {
		fn()
	}
}
