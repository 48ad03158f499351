package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/messaging"
	"orderpaid/platform/postgres"
)

// A sequence hands out ids in the order of the inserts, and rows become
// visible in the order of the commits. A relay that remembers "the last id
// that I have seen" skips what commits late with a lower id; this one has
// nothing to remember. The cell looks for the row that had to wait longest.

func (s *stand) lateGroup() group {
	return group{title: "rows committed late", share: 5, cells: []cell{
		{name: "late/commits@always", what: "16 clients commit flat out, 8 transactions stay open for 0.3 to 3 s, a backlog appears", run: s.lateCommits},
	}}
}

// Clients of the late cell.
const (
	hasty = 16 // commit one event after the other
	tardy = 8  // stage first, and commit much later
)

func (s *stand) lateCommits(ctx context.Context) (Reading, error) {
	shop, err := s.openShop(ctx, s.always, 0, shopSetup{conns: hasty + tardy + 1, wake: true})
	if err != nil {
		return nil, err
	}
	defer shop.close()
	acks, stopRelay, err := shop.relay(ctx)
	if err != nil {
		return nil, err
	}
	defer stopRelay()
	load := lateLoad{pool: shop.pool, outbox: shop.outbox, late: newClock()}
	m, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := load.run(ctx, 2*s.sizing.paced, s.events); err != nil {
		return nil, err
	}
	if err := awaitEvidence(ctx, shop.pool); err != nil {
		return nil, err
	}
	total := int(load.committed.Load())
	r, err := m.stop(ctx, total)
	if err != nil {
		return nil, err
	}
	if have, err := s.always.stored(ctx); err != nil || have != total {
		return nil, errors.Join(errCheated, err, fmt.Errorf("the stream holds %d of %d events", have, total))
	}
	overtaken, err := overtaken(ctx, shop.pool, acks.acked, load.late)
	if err != nil {
		return nil, err
	}
	took, err := acks.acked.until(overtaken)
	if err != nil {
		return nil, err
	}
	for name, v := range distribution(took) {
		r[name] = v
	}
	r[lateWait] = r[longest] / 1000
	return r, nil
}

const sqlInOrder = `SELECT shard, aggregate_id FROM message_outbox ORDER BY shard, id DESC`

// overtaken returns those of the late ones that really were: when they
// committed, an event of their shard with a higher id had been acknowledged.
// The others are in their turn: a transaction that began behind a backlog has a
// higher id than all of it, and waits for it as everybody does.
func overtaken(ctx context.Context, pool *pgxpool.Pool, acked, late *clock) (*clock, error) {
	rows, err := pool.Query(ctx, sqlInOrder)
	if err != nil {
		return nil, err
	}
	of := newClock()
	var shard, before int16 = 0, -1
	var id string
	var first time.Time // when the first of the higher ids was acknowledged
	_, err = pgx.ForEachRow(rows, []any{&shard, &id}, func() error {
		if shard != before {
			before, first = shard, time.Time{}
		}
		key := "order/" + id
		if committed, tardy := late.at[key]; tardy && !first.IsZero() && first.Before(committed) {
			of.at[key] = committed
		}
		if at, ok := acked.at[key]; ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
		return nil
	})
	if err == nil && len(of.at) == 0 {
		err = fmt.Errorf("%w: no row was late", errCheated)
	}
	return of, err
}

type lateLoad struct {
	pool      *pgxpool.Pool
	outbox    *messaging.Outbox
	committed atomic.Int64
	late      *clock // when the late ones committed
}

// run keeps the load up for d; a backlog appears when a quarter of it is over.
func (l *lateLoad) run(ctx context.Context, d time.Duration, backlog *work) error {
	ends := time.Now().Add(d)
	g, ctx := errgroup.WithContext(ctx)
	for client := range hasty {
		g.Go(func() error {
			for n := 0; time.Now().Before(ends); n++ {
				if err := l.commit(ctx, fmt.Sprintf("hasty-%d-%d", client, n), 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for client := range tardy {
		g.Go(func() error {
			for n := 0; time.Now().Before(ends); n++ {
				id := fmt.Sprintf("tardy-%d-%d", client, n)
				if err := l.commit(ctx, id, 300*time.Millisecond+rand.N(2700*time.Millisecond)); err != nil {
					return err
				}
				l.late.note("order/" + id)
			}
			return nil
		})
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d / 4):
		}
		l.committed.Add(int64(len(backlog.messages)))
		return postgres.InTx(ctx, l.pool, func(tx pgx.Tx) error { return backlog.stage(ctx, tx) })
	})
	return g.Wait()
}

// commit stages one event and commits after a while.
func (l *lateLoad) commit(ctx context.Context, id string, after time.Duration) error {
	err := postgres.InTx(ctx, l.pool, func(tx pgx.Tx) error {
		if err := l.outbox.Add(ctx, tx, paidBy(id, 1, "u_1", 1)); err != nil {
			return err
		}
		if after > 0 {
			time.Sleep(after)
		}
		return nil
	})
	if err == nil {
		l.committed.Add(1)
	}
	return err
}
