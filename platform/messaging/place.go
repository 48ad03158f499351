package messaging

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errPlaceLost: another replica is the active one now.
var errPlaceLost = errors.New("another replica has taken this consumer's place")

// consumerPlace is the right to be the active replica of a consumer: a row of
// consumer_lease in the consumer's own database, so that it is lost and won
// together with the ability to write effects.
//
// Every group's transaction begins by prolonging the lease under its epoch.
// That statement is the fence: it fails for a replica that was replaced, and
// its row lock makes a replacement wait for a transaction that is about to
// commit. So two replicas never write at the same time.
type consumerPlace struct {
	pool     *pgxpool.Pool
	consumer string
	replica  string
	term     time.Duration
	epoch    atomic.Int64 // 0 while the place is not ours
	since    atomic.Int64 // how far back the inbox remembers; UnixMicro
}

func newConsumerPlace(pool *pgxpool.Pool, consumer, replica string, term time.Duration) *consumerPlace {
	return &consumerPlace{pool: pool, consumer: consumer, replica: replica, term: term}
}

const sqlAddConsumer = `INSERT INTO consumer_lease (consumer) VALUES ($1) ON CONFLICT (consumer) DO NOTHING`

const sqlTakePlace = `
WITH free AS (
	SELECT consumer FROM consumer_lease
	 WHERE consumer = $1 AND (lease_until < clock_timestamp() OR owner = $2 OR lease_until > clock_timestamp() + $4::interval)
	   FOR UPDATE SKIP LOCKED
)
UPDATE consumer_lease l SET owner = $2, epoch = l.epoch + 1, lease_until = clock_timestamp() + $3::interval
  FROM free
 WHERE l.consumer = free.consumer
RETURNING l.epoch, (SELECT greatest(inbox_since, 'epoch') FROM message_horizon)`

// take waits until this replica is the active one. It looks a few times a
// second, so that a place left on purpose is taken at once.
func (p *consumerPlace) take(ctx context.Context) error {
	if _, err := p.pool.Exec(ctx, sqlAddConsumer, p.consumer); err != nil {
		return fmt.Errorf("register consumer: %w", err)
	}
	for {
		var epoch int64
		var since time.Time
		err := p.pool.QueryRow(ctx, sqlTakePlace, p.consumer, p.replica, p.term, beyond(p.term)).Scan(&epoch, &since)
		if err == nil {
			p.since.Store(since.UnixMicro())
			p.epoch.Store(epoch)
			return nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("take the consumer's place: %w", err)
		}
		wait(ctx, min(p.term/20, 500*time.Millisecond))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// The horizon moves while retention takes a partition of the inbox off, and a
// replica may be the active one for months. So whatever prolongs the lease
// tells the horizon too: as long as this replica may write, it has the latest.
const sqlKeepPlace = `
UPDATE consumer_lease SET lease_until = clock_timestamp() + $4::interval
 WHERE consumer = $1 AND owner = $2 AND epoch = $3 AND lease_until > clock_timestamp()
RETURNING (SELECT greatest(inbox_since, 'epoch') FROM message_horizon)`

// fence prolongs the lease inside tx, or fails because it is another's.
func (p *consumerPlace) fence(ctx context.Context, tx pgx.Tx) error {
	var since time.Time
	err := tx.QueryRow(ctx, sqlKeepPlace, p.consumer, p.replica, p.epoch.Load(), p.term).Scan(&since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errPlaceLost
	case err != nil:
		return fmt.Errorf("check the consumer's place: %w", err)
	}
	p.since.Store(since.UnixMicro())
	return nil
}

// keep renews the lease while no group does. The context it returns ends when
// the database says that the place is another's. While the database does not
// answer, nobody can take the place and nothing can be written, so the context
// stays: when it answers again, the fence tells who is who.
func (p *consumerPlace) keep(ctx context.Context) (active context.Context, stop func()) {
	active, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(p.term / 4)
		defer tick.Stop()
		for {
			select {
			case <-active.Done():
				return
			case <-tick.C:
			}
			if p.lost(active) {
				cancel()
				return
			}
		}
	}()
	return active, func() { cancel(); <-done }
}

// lost renews the lease, and reports whether it is another's. It does not wait
// for a database that hangs: the next tick asks again.
func (p *consumerPlace) lost(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, p.term/4)
	defer cancel()
	var since time.Time
	err := p.pool.QueryRow(ctx, sqlKeepPlace, p.consumer, p.replica, p.epoch.Load(), p.term).Scan(&since)
	if err == nil {
		p.since.Store(since.UnixMicro())
	}
	return errors.Is(err, pgx.ErrNoRows)
}

const sqlLeavePlace = `
UPDATE consumer_lease SET lease_until = '-infinity'
 WHERE consumer = $1 AND owner = $2 AND epoch = $3`

// leave gives the place up, so that another replica need not wait for the
// lease to end. If it fails, the lease ends by itself.
func (p *consumerPlace) leave(ctx context.Context) {
	epoch := p.epoch.Swap(0)
	if epoch == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _ = p.pool.Exec(ctx, sqlLeavePlace, p.consumer, p.replica, epoch)
}
