package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"orderpaid/platform/messaging"
	"orderpaid/platform/postgres"
)

// A sequence hands out ids in the order of the inserts, and rows become
// visible in the order of the commits. A relay that remembers "the last id
// that I have seen" skips what commits late with a lower id; this one has
// nothing to remember. Two cells look for the row that had to wait longest:
// one while there is nothing but the clients, where the whole wait counts, and
// one while a backlog is drained, where everybody waits for what has a lower
// id, and what counts is for how long those with a higher one went first.

func (s *stand) lateGroup() group {
	return group{title: "rows committed late", share: 5, cells: []cell{
		{name: "late/commits@always", what: "16 clients commit flat out, 8 transactions stay open for 0.3 to 3 s", run: s.lateCommits(nil)},
		{name: "late/backlog@always", what: "the same, and a backlog appears by one commit", run: s.lateCommits(s.events)},
	}}
}

// Clients of the late cells.
const (
	hasty = 16 // commit one event after the other
	tardy = 8  // stage first, and commit much later
)

func (s *stand) lateCommits(backlog *work) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
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
		if err := load.run(ctx, 2*s.sizing.paced, backlog); err != nil {
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
		return r, load.waits(ctx, acks, r)
	}
}

// waits adds how long the late rows waited, and for how long they were passed
// over.
func (l *lateLoad) waits(ctx context.Context, acks *ackClock, r Reading) error {
	took, err := acks.acked.until(l.late)
	if err != nil {
		return err
	}
	for name, v := range distribution(took) {
		r[name] = v
	}
	r[lateWait] = r[longest] / 1000
	passed, overtaken, err := passedOver(ctx, l.pool, acks.events, l.late)
	if err == nil && overtaken == 0 {
		err = fmt.Errorf("%w: no row was late", errCheated)
	}
	r[latePassed] = passed.Seconds()
	r[lateRows] = float64(overtaken)
	return err
}

const sqlInOrder = `SELECT shard, event_id, aggregate_id FROM message_outbox ORDER BY shard, id DESC`

// passedOver returns for how long, at most, a row that was committed and not
// yet acknowledged saw events of its shard with a higher id acknowledged, and
// how many rows were overtaken at all: when they committed, such an event had
// been acknowledged. A row that waits behind lower ids alone is in its turn.
func passedOver(ctx context.Context, pool *pgxpool.Pool, acked map[uuid.UUID]time.Time, late *clock) (longest time.Duration, overtaken int, err error) {
	rows, err := pool.Query(ctx, sqlInOrder)
	if err != nil {
		return 0, 0, err
	}
	var shard, before int16 = 0, -1
	var event uuid.UUID
	var id string
	var higher []time.Time // when the higher ids of the shard were acknowledged
	_, err = pgx.ForEachRow(rows, []any{&shard, &event, &id}, func() error {
		if shard != before {
			before, higher = shard, higher[:0]
		}
		at, ok := acked[event]
		if committed, isLate := late.at["order/"+id]; isLate && ok {
			first := false
			for _, passed := range higher {
				first = first || passed.Before(committed)
				if passed.Before(at) {
					longest = max(longest, passed.Sub(committed))
				}
			}
			if first {
				overtaken++
			}
		}
		if ok {
			higher = append(higher, at)
		}
		return nil
	})
	return longest, overtaken, err
}

type lateLoad struct {
	pool      *pgxpool.Pool
	outbox    *messaging.Outbox
	committed atomic.Int64
	late      *clock // when the late ones committed
}

// run keeps the load up for d. A backlog, if there is one, appears when a
// quarter of it is over.
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
		if backlog == nil {
			return nil
		}
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
