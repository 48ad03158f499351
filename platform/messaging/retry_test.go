package messaging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orderpaid/platform/postgres"
)

// C62: among them, an error that a handler has ignored.
func TestErrorsAreJudgedByWhatTheyAreAndNeverByTheirText(t *testing.T) {
	t.Parallel()
	sqlstate := func(code string) error {
		return fmt.Errorf("book: %w", &pgconn.PgError{Code: code, Message: "deadlock detected, duplicate key, connection refused"})
	}
	cases := []struct {
		name string
		err  error
		want verdict
		code string
	}{
		{"a handler's own error", errors.New("deadlock detected"), ordinary, "handler_error"},
		{"marked permanent", Permanent(Coded("bad_amount", errors.New("x"))), permanent, "bad_amount"},
		{"permanent beats the database", Permanent(sqlstate("40001")), permanent, "sqlstate_40001"},
		{"asked for later", RetryAfter(sqlstate("22P02"), time.Second), ordinary, "sqlstate_22P02"},
		{"serialization failure", sqlstate("40001"), contention, "sqlstate_40001"},
		{"deadlock", sqlstate("40P01"), contention, "sqlstate_40P01"},
		{"lock timeout", sqlstate("55P03"), contention, "sqlstate_55P03"},
		{"statement timeout", sqlstate("57014"), ordinary, "sqlstate_57014"},
		{"the server is stopping", sqlstate("57P01"), again, "sqlstate_57P01"},
		{"too many connections", sqlstate("53300"), again, "sqlstate_53300"},
		{"connection lost", sqlstate("08006"), again, "sqlstate_08006"},
		{"a NUL", sqlstate("22021"), permanent, "sqlstate_22021"},
		{"out of range", sqlstate("22003"), permanent, "sqlstate_22003"},
		{"a CHECK", sqlstate("23514"), permanent, "sqlstate_23514"},
		{"a column that must be given", sqlstate("23502"), ordinary, "sqlstate_23502"},
		{"a column that is not there yet", sqlstate("42703"), ordinary, "sqlstate_42703"},
		{"a table that is not there yet", sqlstate("42P01"), ordinary, "sqlstate_42P01"},
		{"a right that was not granted yet", sqlstate("42501"), ordinary, "sqlstate_42501"},
		{"a unique key", sqlstate("23505"), ordinary, "sqlstate_23505"},
		{"nobody knows whether it committed", fmt.Errorf("x: %w", postgres.ErrUnknownOutcome), again, "handler_error"},
		{"the handler's time was up", fmt.Errorf("x: %w", context.DeadlineExceeded), ordinary, "handler_timeout"},
		{"no connection in time", fmt.Errorf("%w: %w", postgres.ErrNotBegun, context.DeadlineExceeded), again, "handler_timeout"},
		{"no partition for this month", fmt.Errorf("x: %w", ErrNoPartition), again, "handler_error"},
		{"the end of a connection", fmt.Errorf("x: %w", io.ErrUnexpectedEOF), again, "handler_error"},
		{"the end of a text that a handler reads", &handlerError{fmt.Errorf("x: %w", io.ErrUnexpectedEOF)}, ordinary, "handler_error"},
		{"another database that a handler asks is away", &handlerError{fmt.Errorf("x: %w", postgres.ErrNotBegun)}, ordinary, "handler_error"},
		{"no partition, by the outbox in a handler", &handlerError{fmt.Errorf("x: %w", ErrNoPartition)}, again, "handler_error"},
		{"a commit after a statement that failed", fmt.Errorf("commit: %w", pgx.ErrTxCommitRollback), ordinary, "error_ignored"},
		{"a panic", &panicError{value: 7}, ordinary, "panic"},
	}
	for _, c := range cases {
		if got := judge(c.err); got != c.want {
			t.Errorf("%s: got verdict %d, want %d", c.name, got, c.want)
		}
		if got := codeOf(c.err); got != c.code {
			t.Errorf("%s: got code %s, want %s", c.name, got, c.code)
		}
	}
}

func TestMarksOnNoErrorAreNoError(t *testing.T) {
	t.Parallel()
	if Permanent(nil) != nil || RetryAfter(nil, time.Second) != nil || Coded("x", nil) != nil {
		t.Error("got an error made of none")
	}
}

// C37: the schedule of the defaults, over simulated hours: delays within their
// bounds, both bounds of the budget respected, and long enough to outlast a
// deployment.
func TestTheScheduleIsBoundedInDelayAttemptsAndTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := ConsumerConfig{}.withDefaults("test").schedule()
		for range 200 {
			start := time.Now()
			var spent time.Duration
			attempts := 1
			for {
				delay, left := s.next(attempts-1, spent, errors.New("flaky"))
				if delay <= 0 || delay > s.longest {
					t.Fatalf("got a delay of %v, want at most %v", delay, s.longest)
				}
				if !left {
					break
				}
				<-time.After(delay) // simulated
				spent += delay
				attempts++
			}
			if attempts > s.attempts || time.Since(start) > s.budget {
				t.Fatalf("got %d attempts in %v, want at most %d in %v", attempts, time.Since(start), s.attempts, s.budget)
			}
			if time.Since(start) < 2*time.Minute {
				t.Fatalf("got a budget that ends after %v, want it to outlast a short outage", time.Since(start))
			}
		}
	})
}

func TestADelayThatWasAskedForIsTheLeast(t *testing.T) {
	t.Parallel()
	s := ConsumerConfig{}.withDefaults("test").schedule()
	if delay, _ := s.next(0, 0, RetryAfter(errors.New("x"), time.Minute)); delay != time.Minute {
		t.Errorf("got %v, want a minute", delay)
	}
	if _, left := s.next(0, 59*time.Minute, RetryAfter(errors.New("x"), 2*time.Minute)); left {
		t.Error("got another attempt beyond the budget")
	}
}

func TestBackoffStaysWithinItsBoundsForAnyAttempt(t *testing.T) {
	t.Parallel()
	for n := -1; n < 200; n++ {
		if d := backoff(n, time.Second, time.Minute); d <= 0 || d > time.Minute+1 {
			t.Fatalf("attempt %d: got %v", n, d)
		}
	}
}
