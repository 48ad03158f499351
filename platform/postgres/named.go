package postgres

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// namedTx is a transaction that remembers where the named arguments of a
// statement stand. pgx looks for them in the text at each call; with nine
// statements to a payment that was one part in fourteen of what the order
// service does for it. Anything else, a name too many or too few above all, is
// left to pgx, which says what is wrong.
type namedTx struct{ pgx.Tx }

func (tx namedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	sql, args = positional(ctx, sql, args)
	return tx.Tx.Exec(ctx, sql, args...)
}

func (tx namedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	sql, args = positional(ctx, sql, args)
	return tx.Tx.Query(ctx, sql, args...)
}

func (tx namedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	sql, args = positional(ctx, sql, args)
	return tx.Tx.QueryRow(ctx, sql, args...)
}

func (tx namedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		q.SQL, q.Arguments = positional(ctx, q.SQL, q.Arguments)
	}
	return tx.Tx.SendBatch(ctx, b)
}

// A statement is SQL with positions, and which name stands for which.
type statement struct {
	sql   string
	names []string
}

// statements holds what was learnt, by the text with names. It belongs to the
// program and not to a pool, as the statements do: they are constants, and read
// the same in every database. The bound is for whoever composes them all the same.
var (
	statements       sync.Map
	statementsLearnt atomic.Int32
)

const maxStatements = 1000

func positional(ctx context.Context, sql string, args []any) (string, []any) {
	if len(args) != 1 {
		return sql, args
	}
	given, ok := args[0].(pgx.StrictNamedArgs)
	if !ok {
		return sql, args
	}
	known, ok := statements.Load(sql)
	if !ok {
		if known, ok = learn(ctx, sql, given); !ok {
			return sql, args
		}
	}
	st := known.(statement)
	values := make([]any, len(st.names))
	for i, name := range st.names {
		if values[i], ok = given[name]; !ok {
			return sql, args
		}
	}
	if len(given) != len(values) {
		return sql, args
	}
	return st.sql, values
}

// learn has pgx itself put the names where it would put the values.
func learn(ctx context.Context, sql string, given pgx.StrictNamedArgs) (st any, ok bool) {
	themselves := make(pgx.StrictNamedArgs, len(given))
	for name := range given {
		themselves[name] = name
	}
	text, order, err := themselves.RewriteQuery(ctx, nil, sql, nil)
	if err != nil || statementsLearnt.Load() >= maxStatements {
		return nil, false
	}
	names := make([]string, len(order))
	for i, name := range order {
		names[i] = name.(string)
	}
	statementsLearnt.Add(1)
	learnt := statement{text, names}
	statements.Store(sql, learnt)
	return learnt, true
}
