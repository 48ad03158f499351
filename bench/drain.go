package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/postgres"
)

// The main comparison: how fast a hundred thousand staged events get onto the
// stream, in order, with evidence.

// drainGroup holds the drains and what they are measured against.
func (s *stand) drainGroup() group {
	cells := append(s.limitCells(),
		cell{name: "rowclaim/1@default", what: "row claim, SKIP LOCKED, a lease a row, one worker", run: s.rowClaim(s.lazy)},
		cell{name: "watermill/defaults@default", what: "watermill-sql forwarder, one topic, defaults", run: s.watermill(s.lazy, watermillDefaults, s.slow)},
		cell{name: "watermill/tuned@default", what: "watermill-sql forwarder, eight topics, batches of 1000", run: s.watermill(s.lazy, watermillTuned, s.sizing.events)},
		cell{name: "river/defaults@default", what: "river job that publishes, defaults, 100 workers", run: s.river(s.lazy, riverDefaults, s.slow)},
		cell{name: "river/tuned@default", what: "river job that publishes, 2000 workers, fetches every 2 ms", run: s.river(s.lazy, riverTuned, s.sizing.events)},
		cell{name: "relay/1@default", what: "this relay, one process, --publish=single", run: s.relays(s.lazy, 1)},
		cell{name: "relay/1@always", what: "this relay, one process", run: s.relays(s.always, 1)},
		cell{name: "relay/2@always", what: "this relay, two processes", run: s.relays(s.always, 2)},
		cell{name: "relay/4@always", what: "this relay, four processes", run: s.relays(s.always, 4)},
	)
	return group{title: "publish and drain", share: 38, cells: cells}
}

// drainSteps are what candidates that run in this process do in their own way.
type drainSteps struct {
	stage  func() error               // all events, committed
	settle func() error               // what their users would do after a bulk load; optional
	drain  func(started func()) error // until every event is published and marked; started begins the time
	check  func(positions map[uuid.UUID]int64) error
}

// drainOf takes a candidate through the steps and measures the third.
func (s *stand) drainOf(ctx context.Context, b *broker, w *work, do drainSteps) (Reading, error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	if err := s.checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := s.walPosition(ctx)
	if err != nil {
		return nil, err
	}
	if err := do.stage(); err != nil {
		return nil, err
	}
	after, err := s.walPosition(ctx)
	if err != nil {
		return nil, err
	}
	if do.settle != nil {
		if err := do.settle(); err != nil {
			return nil, err
		}
	}
	m, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := do.drain(m.restart); err != nil {
		return nil, err
	}
	r, err := m.stop(ctx, len(w.messages))
	if err != nil {
		return nil, err
	}
	r[walTotal] = r[walDrain] + float64(after-before)/float64(len(w.messages))
	positions, inverted, err := w.verify(ctx, b)
	if err != nil {
		return nil, err
	}
	r[inversions] = float64(inverted)
	if do.check != nil {
		err = do.check(positions)
	}
	return r, err
}

// relays measures this project's relay: n processes of cmd/relay with their
// shards divided, idle, until all events appear by one commit.
func (s *stand) relays(b *broker, n int) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		db, drop, err := s.newDatabase(ctx, "messaging")
		if err != nil {
			return nil, err
		}
		defer drop()
		if err := b.reset(ctx); err != nil {
			return nil, err
		}
		pool, err := db.open(ctx, 2)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		relays, err := s.startRelays(ctx, b, pool, n)
		defer stopAll(relays)
		if err != nil {
			return nil, err
		}
		return s.relayDrain(ctx, b, pool, s.events, relays)
	}
}

// outboxName is the database's name to relays and their wake-up hints.
const outboxName = "bench"

// startRelays starts n relays on one outbox and waits until they have divided
// its shards.
func (s *stand) startRelays(ctx context.Context, b *broker, pool *pgxpool.Pool, n int) (relays []*child, err error) {
	dsn, publish := s.pg.DSN(pool.Config().ConnConfig.Database), "batches"
	if b == s.lazy {
		publish = "single" // what its --help advises there
	}
	for i := range n {
		relay, err := s.startService(ctx, "relay", fmt.Sprintf("relay-%d", i+1), "RELAY_DATABASES="+outboxName+"="+dsn, "NATS_URL="+b.url, "RELAY_PUBLISH="+publish)
		if relay != nil {
			relays = append(relays, relay)
		}
		if err != nil {
			return relays, err
		}
	}
	err = poll(ctx, 20*time.Millisecond, func() (bool, error) {
		owners, err := single(ctx, pool, `SELECT CASE WHEN count(*) = 64 THEN count(DISTINCT owner) ELSE 0 END FROM relay_lease WHERE lease_until > now()`)
		return int(owners) == n, err
	})
	if err != nil {
		return relays, fmt.Errorf("wait for the shards to be divided: %w", err)
	}
	return relays, nil
}

// startService starts one of cmd's programs with listeners of its own and
// waits until it is ready.
func (s *stand) startService(ctx context.Context, program, name string, env ...string) (*child, error) {
	ops, err := freeAddress()
	if err != nil {
		return nil, err
	}
	c, err := s.spawn(name, program, append(env, "OPS_ADDR="+ops))
	if err != nil {
		return nil, err
	}
	return c, c.awaitReady(ctx, "http://"+ops+"/readyz")
}

func stopAll(children []*child) {
	for _, c := range children {
		c.stop()
	}
}

// relayDrain stages a work in one transaction, commits it, and measures until
// the last event has its evidence. The outbox must have nothing pending.
func (s *stand) relayDrain(ctx context.Context, b *broker, pool *pgxpool.Pool, w *work, relays []*child) (Reading, error) {
	if err := s.checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := s.walPosition(ctx)
	if err != nil {
		return nil, err
	}
	held, err := b.stored(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.stageAtOnce(ctx, pool, w, relays)
	if err != nil {
		return nil, err
	}
	m.restart() // the commit is the service's time, not the relay's
	if err := errors.Join(b.hint(outboxName), b.awaitStored(ctx, held+len(w.messages)), awaitEvidence(ctx, pool)); err != nil {
		return nil, err
	}
	r, err := m.stop(ctx, len(w.messages))
	if err != nil {
		return nil, err
	}
	r[walTotal] = r[walDrain] + float64(m.before.wal-before)/float64(len(w.messages))
	if held > 0 { // checked by the caller, with what was there before
		return r, nil
	}
	positions, inverted, err := w.verify(ctx, b)
	if err != nil {
		return nil, err
	}
	r[inversions] = float64(inverted)
	return r, verifyEvidence(ctx, pool, positions)
}

// stageAtOnce makes all events visible by one commit, with the meter started
// just before it.
func (s *stand) stageAtOnce(ctx context.Context, pool *pgxpool.Pool, w *work, own []*child) (m *meter, err error) {
	err = postgres.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
		if err = w.stage(ctx, tx); err != nil {
			return err
		}
		m, err = s.start(ctx, own...)
		return err
	})
	return m, err
}

// awaitEvidence waits until nothing is pending any more.
func awaitEvidence(ctx context.Context, pool *pgxpool.Pool) error {
	err := poll(ctx, 2*time.Millisecond, func() (bool, error) {
		n, err := single(ctx, pool, `SELECT count(*) FROM (SELECT FROM message_outbox_pending LIMIT 1) p`)
		return n == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for the evidence: %w", err)
	}
	return nil
}

// hint wakes the relays of an outbox, as the service does after a commit.
func (b *broker) hint(database string) error {
	if err := b.nc.Publish("shop.wake."+database, nil); err != nil {
		return fmt.Errorf("hint: %w", err)
	}
	return b.nc.Flush()
}

// connectProduct connects as a program of this project does.
func (b *broker) connectProduct(ctx context.Context, name string) (*natsbroker.Broker, error) {
	return natsbroker.Connect(ctx, natsbroker.Config{URL: b.url, Name: name})
}
