package messaging

import (
	"errors"
	"fmt"
	"time"
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

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

type retryAfterError struct {
	err   error
	delay time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string { return fmt.Sprintf("%s: %v", e.code, e.err) }
func (e *codedError) Unwrap() error { return e.err }
