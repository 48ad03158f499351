package postgres

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// ErrUnknownOutcome says that a commit was sent and its answer never came, or
// was not one that proves a rollback. The transaction may be done. Find out by
// running the same command again under the same business key (payment id,
// idempotency key, event id), never under a new one.
var ErrUnknownOutcome = errors.New("commit outcome unknown")

// Class says what a database error means for the one who wants to try again.
// Its text is what table message_failure stores.
type Class string

const (
	Transient Class = "transient" // nothing was committed; the same transaction may succeed later
	Permanent Class = "permanent" // nothing was committed; the same transaction will fail again
	Unknown   Class = "unknown"   // it may have been committed
)

// Classify judges an error from the database, or from the way to it. Errors of
// any other origin are [Permanent], because a database cannot mend them; nil
// has no class.
func Classify(err error) Class {
	var connectErr *pgconn.ConnectError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrUnknownOutcome):
		return Unknown
	case errors.As(err, &connectErr):
		// Whatever the reason (down, starting, full, a password just being
		// rotated), no statement was run and no data is at fault.
		return Transient
	case stalePlan(err):
		return Transient
	case Code(err) != "":
		return classifyCode(Code(err))
	case errors.Is(err, pgx.ErrTxCommitRollback):
		// An earlier statement failed, and the code went on and committed.
		// Its error is gone, and it may have been a deadlock.
		return Transient
	case connectionLost(err):
		return Transient
	default:
		return Permanent
	}
}

const (
	readOnly    = "25006" // read_only_sql_transaction
	notPrepared = "26000" // invalid_sql_statement_name: a prepared statement that the session does not have
	preparedYet = "42P05" // duplicate_prepared_statement: one that it should not have
)

// classifyCode judges a SQLSTATE.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func classifyCode(code string) Class {
	switch code {
	case "40003": // statement_completion_unknown
		return Unknown
	case "40001", "40P01", // serialization_failure, deadlock_detected
		"55P03", "55006", // lock_not_available, object_in_use
		"57014",                   // query_canceled: statement_timeout
		"57P01", "57P02", "57P03", // the server is stopping, crashed, or still starting
		"57P05", "25P03", "25P04", // the session idled, or its transaction took too long
		notPrepared, preparedYet, // a pooler, or a person, changed the session
		readOnly: // still connected to a former primary
		return Transient
	}
	switch code[:2] {
	case "08", "53", "58": // connection, out of resources, system
		return Transient
	}
	return Permanent
}

// stalePlan reports whether a migration has changed what a prepared statement
// returns, under a session that had prepared it before. pgx forgets the statement
// then, and prepares it anew the next time. The SQLSTATE is that of everything
// that is not supported, so the place in the server's source tells; the message
// would be translated.
func stalePlan(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "0A000" && pgErr.Routine == "RevalidateCachedQuery"
}

// connectionLost reports whether the error is about the way to the server.
func connectionLost(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, puddle.ErrClosedPool)
}

// rolledBack reports whether an error of COMMIT proves that nothing was
// committed. It believes only what the server itself said while the session
// went on: severity ERROR, as opposed to FATAL, is raised before the commit
// record is written (a deferred constraint, a serialization failure). Lost
// connections, deadlines, shutdowns, cancels and everything that a proxy may
// have made up do not count.
//
// pgconn.SafeToRetry is of no use here: for a connection that dies during
// COMMIT, pgx 5.9 to 5.12 call a committed transaction safe to retry.
func rolledBack(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.SeverityUnlocalized != "ERROR" || len(pgErr.Code) != 5 {
		return false
	}
	switch pgErr.Code[:2] {
	case "08", "57", "58", "XX":
		return false
	}
	return pgErr.Code != "40003"
}

// Code returns the SQLSTATE of an error, or "" if the server did not send one.
func Code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && len(pgErr.Code) == 5 {
		return pgErr.Code
	}
	return ""
}

// IsUniqueViolation reports whether err says that constraint (the name of a
// unique constraint or index) already has such a row. On a partitioned table
// the constraint is that of the partition.
func IsUniqueViolation(err error, constraint string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "23505" && pgErr.ConstraintName == constraint
}
