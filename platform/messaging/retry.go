package messaging

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"orderpaid/platform/postgres"
)

// Permanent marks an error that no retry can mend: the event itself is wrong
// for this consumer. The event becomes a dead letter. Permanent(nil) is nil.
//
// The idea that the handler's return value steers the delivery is Oban's.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// RetryAfter says that the event should be tried again, but not before d.
// It counts as an attempt. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, d}
}

// Coded gives an error the stable code under which it is stored, counted and
// searched: lower case, words joined by underscores, never personal data.
func Coded(code string, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// IsPermanent reports whether err was marked with [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// A verdict is what the consumer does about the error of a transaction.
type verdict int

const (
	// again: the database is away, or whether it committed is unknown. The
	// same transaction is repeated until it answers; nothing is counted
	// against the events, because nothing is known to be wrong with them.
	again verdict = iota
	// contention: the transaction lost against another one. It is repeated a
	// few times at once.
	contention
	// ordinary: a handler failed. The group is split; the event that stands
	// alone with the error is tried again later.
	ordinary
	// permanent: no retry can mend the event. It becomes a dead letter.
	permanent
)

func (v verdict) class() string {
	switch v {
	case permanent:
		return "permanent"
	case again:
		return "unknown"
	default:
		return "transient"
	}
}

// A schedule says when a failed event is tried again, and when no more.
type schedule struct {
	first, longest time.Duration // bounds of the delay
	attempts       int           // bound of their number
	budget         time.Duration // bound of their sum
}

// next returns the delay after one more failure. made is how many attempts of
// this budget came before it and spent the sum of their delays. left is false
// when either is used up. A handler that asked for a delay gets at least that.
func (s schedule) next(made int, spent time.Duration, cause error) (delay time.Duration, left bool) {
	delay = backoff(made, s.first, s.longest)
	var asked *retryAfterError
	if errors.As(cause, &asked) {
		delay = max(delay, asked.delay)
	}
	return delay, made+1 < s.attempts && spent+delay <= s.budget
}

// ofHandler marks an error that a handler did not get from its transaction:
// the server did not send it, and the connection is as good as before. Such an
// error may look like one of the database's, the end of a text like a broken
// connection, a call of another system like a lost one. Without the mark the
// group would be repeated until the database is back, which is not away: for
// ever, and with everything behind it. Nor is it this database's word that a
// transaction of another one could not begin.
func ofHandler(tx pgx.Tx, err error) error {
	elsewhere := errors.Is(err, postgres.ErrNotBegun)
	if err == nil || tx.Conn().IsClosed() || postgres.Code(err) != "" && !elsewhere {
		return err
	}
	return &handlerError{err}
}

// judge is the only place where an error's kind is decided. It goes by marks
// and SQLSTATE, never by the text of a message, which is translated and edited.
func judge(err error) verdict {
	var delayed *retryAfterError
	var own *handlerError
	switch {
	case IsPermanent(err):
		return permanent
	case errors.As(err, &delayed):
		return ordinary
	case errors.Is(err, ErrNoPartition), errors.Is(err, postgres.ErrUnknownOutcome): // of the database, not of the event
		return again
	case errors.As(err, &own):
		return ordinary
	case errors.Is(err, postgres.ErrNotBegun):
		return again
	}
	switch code := postgres.Code(err); {
	case code == "40001" || code == "40P01" || code == "55P03":
		return contention
	case code == "57014": // statement_timeout, or a cancelled request: this event's own slowness
		return ordinary
	case strings.HasPrefix(code, "22") || code == "23514":
		return permanent // a value that the database cannot hold, or that a CHECK forbids
	case code == "23502" || strings.HasPrefix(code, "42"):
		// A column that must be given, or a table, column, function or right
		// that is missing: the schema and this build do not fit, for as long
		// as a deployment takes. The event is not at fault.
		return ordinary
	case errors.Is(err, pgx.ErrTxCommitRollback): // a handler got an error and went on
		return ordinary
	case errors.Is(err, context.DeadlineExceeded): // the handler's time was up
		return ordinary
	case postgres.Classify(err) == postgres.Transient:
		return again
	}
	return ordinary
}

// codeOf names an error in a form that can be counted: the code it was given
// with [Coded], or the SQLSTATE, or what kind of error it is.
func codeOf(err error) string {
	var coded *codedError
	var panicked *panicError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &panicked):
		return "panic"
	case postgres.Code(err) != "":
		return "sqlstate_" + postgres.Code(err)
	case errors.Is(err, context.DeadlineExceeded):
		return "handler_timeout"
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return "error_ignored"
	}
	return "handler_error"
}

var (
	mailPattern   = regexp.MustCompile(`[^\s"'<>()=,;:]+@[^\s"'<>()=,;:]+`)
	digitsPattern = regexp.MustCompile(`\d[\d -]{10,}\d`)
)

// detailOf is the text of an error as it may be stored, logged and shown. A
// database's message can quote the row it refused, so of those only the
// SQLSTATE is kept; from everything else, what looks like a mail address, a
// card or a telephone number is masked.
func detailOf(err error) string {
	if code := postgres.Code(err); code != "" {
		return "the database refused the transaction with SQLSTATE " + code
	}
	text := strings.ToValidUTF8(err.Error(), "?")
	text = strings.ReplaceAll(text, "\x00", "?")
	text = mailPattern.ReplaceAllString(text, "…@…")
	return truncate(digitsPattern.ReplaceAllString(text, "…"), 1000)
}

// panicError is a handler's panic. Its value may quote the event, so only its
// type is told.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("the handler panicked with a %T", e.value) }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

type retryAfterError struct {
	err   error
	delay time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }
func (e *handlerError) Unwrap() error { return e.err }

type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string { return fmt.Sprintf("%s: %v", e.code, e.err) }
func (e *codedError) Unwrap() error { return e.err }
