package console

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/opsapi"
	"orderpaid/platform/postgres"
)

// Limits of one look at the index: so many orders are asked about in one
// request, and so many requests are made before the next pause.
const (
	indexPage  = 500
	indexPages = 20
)

// The pause between two looks. It grows while search confirms nothing: what it
// lacks for long is behind a dead letter or a freeze, and every replica of the
// console asks, a service in trouble, too. A new payment ends it, or the one
// order that is stuck would make all others of a quiet shop late.
const (
	indexPause    = time.Second
	indexPauseMax = time.Minute
)

// An indexWatch is how far the questions to search have come.
type indexWatch struct {
	after  string        // the order to go on after, in the order of their ids; "" is the start
	pause  time.Duration // before the next look
	vain   bool          // since the start something was asked about, and nothing was found
	wrong  bool          // the last look has failed, which was logged
	paid   int64         // payments that were known at the last pause
	logger *slog.Logger
}

func newIndexWatch(logger *slog.Logger) *indexWatch {
	return &indexWatch{pause: indexPause, logger: logger}
}

// watchIndex asks search whether it has the paid orders that it has not
// confirmed, until ctx is done. While search is away the answer is late and
// nothing else.
//
// It asks about each order by the event that search must have applied. Reading
// what search has written since the last time would be less to ask, and would
// miss for ever what it writes late: after a freeze, a dead letter or a replay.
func (s *Service) watchIndex(ctx context.Context) error {
	w := newIndexWatch(slog.Default())
	beat := time.NewTicker(indexPause)
	defer beat.Stop()
	for {
		s.confirmIndexed(ctx, w)
		for left := w.pause; left > 0; left -= indexPause {
			select {
			case <-ctx.Done():
				return nil
			case <-beat.C:
			}
			if w.heard(s.board.Load().Tally.Paid) {
				break
			}
		}
	}
}

// heard notes how many payments are known, and reports whether there are new
// ones to ask about. While search does not answer it need not be asked for them.
func (w *indexWatch) heard(paid int64) bool {
	news := paid != w.paid && !w.wrong
	w.paid = paid
	if news {
		w.pause = indexPause
	}
	return news
}

// confirmIndexed asks about the orders behind the watch's place. It goes on at
// once only while search confirms some of them: a backlog that it has worked
// off is noted quickly, and one that it has not costs it one request.
func (s *Service) confirmIndexed(ctx context.Context, w *indexWatch) {
	for range indexPages {
		waiting, found, err := s.confirmPage(ctx, w.after)
		if ctx.Err() != nil {
			return
		}
		w.note(waiting, found, err)
		if err != nil || found == 0 || w.after == "" {
			return
		}
	}
}

// confirmPage asks about one page of orders and notes which of them are found.
func (s *Service) confirmPage(ctx context.Context, after string) (waiting []opsapi.EventRef, found int, err error) {
	waiting, err = readUnindexed(ctx, s.pool, after, indexPage)
	if err != nil || len(waiting) == 0 {
		return nil, 0, err
	}
	effects, err := s.ops["search"].EffectsOf(ctx, waiting)
	if err != nil {
		return nil, 0, fmt.Errorf("ask search for %d orders: %w", len(waiting), err)
	}
	err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error { return confirm(ctx, tx, effects) })
	return waiting, len(effects), err
}

// note moves the watch behind a page: back to the start from the last one, so
// that the many that search cannot have yet do not keep it from the others, and
// nowhere if the page could not be looked at.
func (w *indexWatch) note(waiting []opsapi.EventRef, found int, err error) {
	if failed := err != nil; failed != w.wrong {
		w.wrong = failed
		if failed {
			w.logger.Warn("what is in the index cannot be confirmed: the board shows less than there is", "error", err)
		} else {
			w.logger.Info("what is in the index is confirmed again")
		}
	}
	if err != nil {
		w.pause = min(2*w.pause, indexPauseMax)
		return
	}
	w.vain = (w.vain || w.after == "") && found == 0
	if found > 0 {
		w.pause = indexPause
	}
	if len(waiting) == indexPage {
		w.after = waiting[indexPage-1].AggregateID
		return
	}
	switch {
	case w.after == "" && len(waiting) == 0: // nothing is left to ask about
		w.pause = indexPause
	case w.vain:
		w.pause = min(2*w.pause, indexPauseMax)
	}
	w.after = ""
}

// sqlUnindexed reads the payments of which search has not confirmed that they
// are in the index. An order that was paid under two event ids is asked about
// by the first.
const sqlUnindexed = `
SELECT e.event_id, e.kind, p.order_id AS aggregate_id, e.aggregate_version, '' AS key
  FROM order_progress p
  JOIN LATERAL (SELECT event_id, kind, aggregate_version FROM audit_event
                 WHERE order_id = p.order_id AND kind = 'OrderPaid.v1' ORDER BY occurred_at LIMIT 1) e ON true
 WHERE p.paid_at IS NOT NULL AND p.indexed_at IS NULL AND p.order_id > $1
 ORDER BY p.order_id LIMIT $2`

func readUnindexed(ctx context.Context, pool *pgxpool.Pool, after string, limit int) ([]opsapi.EventRef, error) {
	rows, err := pool.Query(ctx, sqlUnindexed, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read orders that are not indexed: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[opsapi.EventRef])
}

// sqlConfirm notes which orders are in the index, and counts those that were
// not known to be. Orders are written in the order of their ids, as sqlRecord
// writes them.
const sqlConfirm = `
WITH confirmed AS (
	INSERT INTO order_progress (order_id, indexed_at)
	SELECT order_id, min(at) FROM unnest(@orders::text[], @times::timestamptz[]) AS c(order_id, at) GROUP BY order_id ORDER BY order_id
	    ON CONFLICT (order_id) DO UPDATE SET indexed_at = excluded.indexed_at WHERE order_progress.indexed_at IS NULL
	RETURNING order_id
), counted AS (
	SELECT count(*) AS n FROM confirmed
), total AS (
	INSERT INTO event_total (kind, events) SELECT 'indexed', n FROM counted WHERE n > 0
	    ON CONFLICT (kind) DO UPDATE SET events = event_total.events + excluded.events
)
INSERT INTO event_minute (minute, kind, events) SELECT date_trunc('minute', now()), 'indexed', n FROM counted WHERE n > 0
    ON CONFLICT (minute, kind) DO UPDATE SET events = event_minute.events + excluded.events`

// confirm notes orders that search has confirmed.
func confirm(ctx context.Context, tx pgx.Tx, found []opsapi.Effect) error {
	if len(found) == 0 {
		return nil
	}
	orders, times := make([]string, len(found)), make([]time.Time, len(found))
	for i, effect := range found {
		orders[i], times[i] = effect.Key, effect.At
	}
	if _, err := tx.Exec(ctx, sqlConfirm, pgx.StrictNamedArgs{"orders": orders, "times": times}); err != nil {
		return fmt.Errorf("note %d confirmations: %w", len(found), err)
	}
	return nil
}
