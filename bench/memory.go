package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/services/points"
)

// Memory must not grow with what waits: the relay comes back to a million
// pending events, and then the consumer to a million messages.

func (s *stand) memoryGroup() group {
	return group{title: "flat memory", share: 6, cells: []cell{
		{name: "memory/backlog@always", what: fmt.Sprintf("%s events pending, then %[1]s messages waiting", thousands(s.backlog)), once: true, run: s.backlogMemory},
	}}
}

func (s *stand) backlogMemory(ctx context.Context) (Reading, error) {
	db, drop, err := s.newDatabase(ctx, "messaging")
	if err != nil {
		return nil, err
	}
	defer drop()
	pool, err := db.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := s.stageBacklog(ctx, pool); err != nil {
		return nil, err
	}
	if err := s.always.reset(ctx, points.Subscriptions()...); err != nil {
		return nil, err
	}
	r := Reading{}
	if r[relayPeak], err = s.relayMemory(ctx, pool); err != nil {
		return nil, err
	}
	r[pointsPeak], err = s.pointsMemory(ctx)
	return r, err
}

// stageBacklog stages in parts, so that this process stays small as well.
func (s *stand) stageBacklog(ctx context.Context, pool *pgxpool.Pool) error {
	const part = 50_000
	for first := 0; first < s.backlog; first += part {
		w, err := draftWork(ctx, min(part, s.backlog-first), func(i int) messaging.Draft { return spreadUsers(first + i) })
		if err != nil {
			return err
		}
		if err := w.stage(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// relayMemory is the peak of a relay that starts on the backlog and drains it.
func (s *stand) relayMemory(ctx context.Context, pool *pgxpool.Pool) (peak float64, err error) {
	relays, err := s.startRelays(ctx, s.always, pool, 1)
	defer stopAll(relays)
	if err != nil {
		return 0, err
	}
	if err := s.always.awaitStored(ctx, s.backlog); err != nil {
		return 0, err
	}
	if peak, err = relays[0].peakMemory(); err != nil {
		return 0, err
	}
	if n, err := s.always.stored(ctx); err != nil || n != s.backlog {
		return 0, errors.Join(errCheated, err, fmt.Errorf("the stream holds %d of %d events", n, s.backlog))
	}
	return peak, nil
}

// pointsMemory is the peak of a consumer that starts on the full stream and
// books everything.
func (s *stand) pointsMemory(ctx context.Context) (peak float64, err error) {
	db, drop, err := s.newDatabase(ctx, "points")
	if err != nil {
		return 0, err
	}
	defer drop()
	pool, err := db.open(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	service, err := s.startService(ctx, "points", "points", "HTTP_ADDR=127.0.0.1:0", "DATABASE_URL="+db.dsn, "NATS_URL="+s.always.url)
	if service != nil {
		defer service.stop()
	}
	if err != nil {
		return 0, err
	}
	if err := s.always.awaitConsumed(ctx, awarder); err != nil {
		return 0, err
	}
	if peak, err = service.peakMemory(); err != nil {
		return 0, err
	}
	return peak, checkPoints(ctx, pool, s.backlog)
}
