package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
)

// What time does to an outbox: millions of published rows that stay, and a
// transaction that somebody has left open, behind which nothing is vacuumed.

// standingGroup compares a drain of an outbox with a history with one without.
func (s *stand) standingGroup() group {
	var old database
	many := func(ctx context.Context) (Reading, error) { return s.drainInto(ctx, old) }
	none := func(ctx context.Context) (Reading, error) {
		db, drop, err := s.newDatabase(ctx, "messaging")
		if err != nil {
			return nil, err
		}
		defer drop()
		return s.drainInto(ctx, db)
	}
	return group{
		title: "published rows standing in the table",
		share: 13,
		cells: []cell{
			{name: "standing/none@always", what: "one relay, an outbox without history", run: none},
			{name: "standing/many@always", what: fmt.Sprintf("one relay, %s published rows in the table", thousands(s.standing)), run: many},
		},
		prepare: func(ctx context.Context) (func(), error) {
			var drop func()
			var err error
			if old, drop, err = s.newDatabase(ctx, "messaging"); err != nil {
				return nil, err
			}
			return drop, s.addHistory(ctx, old)
		},
	}
}

// drainInto drains new events, whose ids the database has not seen, by one
// relay.
func (s *stand) drainInto(ctx context.Context, db database) (Reading, error) {
	w, err := s.newWork(ctx, s.sizing.events, burst)
	if err != nil {
		return nil, err
	}
	if err := s.always.reset(ctx); err != nil {
		return nil, err
	}
	pool, err := db.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	relays, err := s.startRelays(ctx, s.always, pool, 1)
	defer stopAll(relays)
	if err != nil {
		return nil, err
	}
	return s.relayDrain(ctx, s.always, pool, w, relays)
}

// sqlAddHistory writes facts with their evidence, as drains of yesterday would
// have left them: ten events a millisecond, 700 bytes each.
const sqlAddHistory = `
WITH fact AS (
	INSERT INTO message_outbox (event_id, shard, aggregate_type, aggregate_id, aggregate_version, kind, subject, payload)
	SELECT (lpad(to_hex(floor(extract(epoch FROM now() - interval '1 day') * 1000)::bigint + i / 10), 12, '0')
	        || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid,
	       i % 64, 'order', 'ord_' || md5((i / 5)::text), i % 5 + 1, 'OrderPaid.v1', 'shop.events.order.OrderPaid.v1.p' || lpad((i % 64)::text, 2, '0'),
	       convert_to(rpad(md5(i::text), 700, md5((i + 1)::text)), 'UTF8')
	  FROM generate_series($1::bigint, $2::bigint) AS i
	RETURNING event_id, id
)
INSERT INTO message_outbox_publication (event_id, stream, stream_seq, duplicate, relay)
SELECT event_id, 'EVENTS', id, false, 'before' FROM fact`

func (s *stand) addHistory(ctx context.Context, db database) error {
	pool, err := db.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	const chunk = 250_000
	for first := 1; first <= s.standing; first += chunk {
		if _, err := pool.Exec(ctx, sqlAddHistory, first, min(first+chunk-1, s.standing)); err != nil {
			return fmt.Errorf("add history: %w", err)
		}
	}
	if _, err := pool.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return fmt.Errorf("add history: %w", err)
	}
	return s.checkpoint(ctx)
}

// rounds is how often the drain is repeated while the transaction stays open.
const rounds = 4

func roundRate(n int) string { return fmt.Sprintf("round_%d_per_second", n) }

// roundsGroup compares drains behind an open transaction with others.
func (s *stand) roundsGroup() group {
	return group{title: "a transaction left open", share: 9, cells: []cell{
		{name: "rounds/none@always", what: fmt.Sprintf("one relay, %d rounds of %s events", rounds, thousands(s.round)), run: s.rounds(false)},
		{name: "rounds/open@always", what: "the same while a transaction stays open", run: s.rounds(true)},
	}}
}

// rounds drains one outbox again and again. Rows that a drain has deleted stay
// in the queue's index for as long as an older transaction is open.
func (s *stand) rounds(leaveOpen bool) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		db, drop, err := s.newDatabase(ctx, "messaging")
		if err != nil {
			return nil, err
		}
		defer drop()
		if err := s.always.reset(ctx); err != nil {
			return nil, err
		}
		pool, err := db.open(ctx, 2)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		if leaveOpen {
			forget, err := leaveTransaction(ctx, db)
			if err != nil {
				return nil, err
			}
			defer forget()
		}
		relays, err := s.startRelays(ctx, s.always, pool, 1)
		defer stopAll(relays)
		if err != nil {
			return nil, err
		}
		return s.drainRounds(ctx, pool, relays)
	}
}

func (s *stand) drainRounds(ctx context.Context, pool *pgxpool.Pool, relays []*child) (Reading, error) {
	all := &work{places: map[uuid.UUID]place{}}
	var sum Reading
	for n := 1; n <= rounds; n++ {
		w, err := s.newWork(ctx, s.round, func(i int) messaging.Draft { return burst((n-1)*s.round + i) })
		if err != nil {
			return nil, err
		}
		maps.Copy(all.places, w.places)
		r, err := s.relayDrain(ctx, s.always, pool, w, relays)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", n, err)
		}
		if sum == nil {
			sum = r
		}
		sum[roundRate(n)] = r[rate]
		sum[rate] = r[rate] // of the last round
	}
	positions, inverted, err := all.verify(ctx, s.always)
	if err != nil {
		return nil, err
	}
	sum[inversions] = float64(inverted)
	return sum, verifyEvidence(ctx, pool, positions)
}

// leaveTransaction opens a transaction that has read and written, and leaves
// it until forget is called.
func leaveTransaction(ctx context.Context, db database) (forget func(), err error) {
	conn, err := pgx.Connect(ctx, db.dsn)
	if err != nil {
		return nil, err
	}
	forget = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id(), count(*) FROM relay_lease")
	if err != nil {
		forget()
		return nil, errors.Join(errors.New("leave a transaction open"), err)
	}
	return forget, nil
}
