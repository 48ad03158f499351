package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

// C61: the handler cannot make sense of one event, and says so with errors that
// a connection that breaks has too. The database is not away: the event alone
// is put off, and the others are applied.
func TestAnErrorOfAHandlersOwnIsNotTakenForALostConnection(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]error{
		"a text that ends too soon":          io.ErrUnexpectedEOF,
		"another system that does not reply": &url.Error{Op: "Get", URL: "http://elsewhere.example", Err: errors.New("connection refused")},
		"something that was called off":      context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireOneFailureOf(t, func(context.Context, pgx.Tx) error { return fmt.Errorf("read note: %w", own) })
		})
	}
}

// C62: the handler goes on after a statement has failed, and the commit turns
// out to be a rollback. It would be one again, whenever it is repeated.
func TestAHandlerThatIgnoresAFailedStatementHoldsNobodyElseUp(t *testing.T) {
	t.Parallel()
	requireOneFailureOf(t, func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, `SELECT 1/0`)
		return nil
	})
}

// requireOneFailureOf delivers three events, of which the handler fails the
// second, and requires that the others have their effects.
func requireOneFailureOf(t *testing.T, fail func(ctx context.Context, tx pgx.Tx) error) {
	t.Helper()
	pool := newEffects(t)
	c := messaging.NewConsumer("writer", pool, nil, messaging.ConsumerConfig{Lease: 2 * time.Second})
	messaging.Handle(c, func(ctx context.Context, tx pgx.Tx, ev messaging.Event[changed]) error {
		if ev.Data.N == 2 {
			return fail(ctx, tx)
		}
		return write(ctx, tx, "writer", ev)
	})
	answers := messagingtest.Deliver(t, c, messagingtest.Envelope(t, "a", 1, changed{N: 1}),
		messagingtest.Envelope(t, "b", 1, changed{N: 2}), messagingtest.Envelope(t, "c", 1, changed{N: 3}))
	if !messagingtest.AllAcked(answers) {
		t.Errorf("got %v, want everything done with", answers)
	}
	if got := count(t, pool, sqlCountEffects); got != 2 {
		t.Errorf("got %d effects, want those of the other two", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM message_failure WHERE aggregate_id = 'b' AND state = 'retrying' AND attempts = 1`); got != 1 {
		t.Errorf("got %d failures of the second that are tried again, want 1", got)
	}
}
