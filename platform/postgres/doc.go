// Package postgres owns how this project talks to PostgreSQL: the pool, the
// transaction, the meaning of an error, and the schema's version.
//
// It promises three things that pgx alone does not:
//
//   - No query, lock or idle transaction holds a connection for ever: every
//     session carries time limits that the server enforces, also when the
//     client is gone.
//   - A commit is either done, or rolled back, or [ErrUnknownOutcome]. It is
//     never called "failed" when it may have happened.
//   - An error is judged by its SQLSTATE, never by its text, which the server
//     writes in the language of its lc_messages.
//
// It does not retry. Whether a transaction may run again is known only to the
// one who opened it.
//
// Read in this order: open.go, types.go, tx.go, named.go, errors.go,
// migrate.go.
package postgres
