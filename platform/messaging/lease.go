package messaging

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/faults"
)

// lanes is how many batches a relay has on the way at once. Shard s belongs to
// lane s mod lanes, so that two lanes never share a shard: one unacknowledged
// batch per shard is what keeps order when a publish fails. With two of them
// either the broker or the database waited for the relay a tenth of the time;
// while two of four are with the broker, two are with the database.
const lanes = 4

// shardLeases is a relay's claim on slices of the outbox.
//
// The database's clock decides who holds a shard: owner, epoch and lease_until
// in relay_lease. This process keeps, per shard, a local deadline counted from
// the moment it *sent* the renewal, less a margin; it can only be earlier than
// the database's. A process that was frozen finds its deadline in the past and
// publishes nothing more.
//
// relay_member lets every relay compute the same fair share, so that a new
// relay gets work and a surplus is given back without anyone coordinating.
type shardLeases struct {
	pool   *pgxpool.Pool
	owner  string
	term   time.Duration // of one lease
	margin time.Duration // how long before its end nothing new is published

	asking sync.Mutex // one statement about leases at a time: a renewal must not revive what was given back meanwhile

	mu      sync.Mutex
	held    map[int16]shardLease
	leaving map[int16]bool // surplus, given back by its lane between two batches
	lanes   [lanes]sync.Mutex
}

type shardLease struct {
	epoch int64
	until time.Time // local and monotonic
}

func newShardLeases(pool *pgxpool.Pool, owner string, term, margin time.Duration) *shardLeases {
	return &shardLeases{pool: pool, owner: owner, term: term, margin: margin,
		held: map[int16]shardLease{}, leaving: map[int16]bool{}}
}

// run keeps the leases until ctx is done, then gives all of them back. It
// looks for free shards several times a second, so that those of a dead relay
// move within the lease plus one second.
func (l *shardLeases) run(ctx context.Context, report func(error)) {
	defer l.releaseAll(context.WithoutCancel(ctx))
	tick := time.NewTicker(min(l.term/20, 500*time.Millisecond))
	defer tick.Stop()
	var renewed, told time.Time
	for {
		var err error
		if time.Since(renewed) >= l.term*3/10 {
			if err = l.renew(ctx); err == nil {
				renewed = time.Now()
			}
		}
		if err == nil {
			err = l.balance(ctx)
		}
		if err != nil && ctx.Err() == nil && time.Since(told) >= time.Minute { // an outage is one story, and not two lines a second
			told = time.Now()
			report(fmt.Errorf("keep shard leases: %w", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const sqlSeeRelay = `
INSERT INTO relay_member (relay, seen_until) VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (relay) DO UPDATE SET seen_until = excluded.seen_until`

// Only leases that still run are renewed: one that ended may be another's
// already, and if it is not, claiming it anew gives it a new epoch.
const sqlRenewShards = `
UPDATE relay_lease SET lease_until = clock_timestamp() + $2::interval
 WHERE owner = $1 AND lease_until > clock_timestamp()
RETURNING shard, epoch`

// renew prolongs what is held and drops what was lost.
func (l *shardLeases) renew(ctx context.Context) error {
	l.asking.Lock()
	defer l.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.term/2)
	defer cancel()
	if _, err := l.pool.Exec(ctx, sqlSeeRelay, l.owner, l.term); err != nil {
		return err
	}
	sent := time.Now()
	leases, err := l.query(ctx, sent, sqlRenewShards, l.owner, l.term)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = leases
	for shard := range l.leaving {
		if _, ok := leases[shard]; !ok {
			delete(l.leaving, shard)
		}
	}
	return nil
}

// longestLease bounds the leases of all relays, so that each can tell another's
// from one that a wrong clock has made.
const longestLease = 2 * time.Minute

// beyond is how far in the future no lease ends, of whoever has another term.
// One that does was made before the database's clock was set back, and nobody
// may be there any more who renews it: it counts as ended, for otherwise all
// would wait until the clock has caught up. A holder that lives is fenced off by
// the epoch, as ever.
func beyond(term time.Duration) time.Duration { return max(longestLease, 10*term) }

const sqlCountRelays = `
SELECT count(*)::int FROM relay_member
 WHERE seen_until > clock_timestamp() AND seen_until < clock_timestamp() + $1::interval`

const sqlClaimShards = `
WITH free AS (
	SELECT shard FROM relay_lease
	 WHERE lease_until < clock_timestamp() OR lease_until > clock_timestamp() + $4::interval
	 ORDER BY shard
	 LIMIT $3
	   FOR UPDATE SKIP LOCKED
)
UPDATE relay_lease l SET owner = $1, epoch = l.epoch + 1, lease_until = clock_timestamp() + $2::interval
  FROM free
 WHERE l.shard = free.shard
RETURNING l.shard, l.epoch`

// balance claims free shards up to this relay's fair share, and marks what is
// above it to be given back.
func (l *shardLeases) balance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.term/2)
	defer cancel()
	l.asking.Lock()
	defer l.asking.Unlock()
	var members int
	if err := l.pool.QueryRow(ctx, sqlCountRelays, beyond(l.term)).Scan(&members); err != nil {
		return err
	}
	share := (Shards + max(members, 1) - 1) / max(members, 1)
	missing := l.surplus(share)
	if missing == 0 {
		return nil
	}
	sent := time.Now()
	claimed, err := l.query(ctx, sent, sqlClaimShards, l.owner, l.term, missing, beyond(l.term))
	if err != nil {
		return err
	}
	faults.Hit("relay.inside_takeover")
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard, lease := range claimed {
		l.held[shard] = lease
	}
	return nil
}

// surplus marks what is held above the share as leaving, and returns how many
// shards are missing to it.
func (l *shardLeases) surplus(share int) (missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.leaving)
	for shard := range l.held {
		if len(l.held)-len(l.leaving) <= share {
			break
		}
		l.leaving[shard] = true
	}
	return max(0, share-len(l.held))
}

const sqlReleaseShards = `
UPDATE relay_lease SET lease_until = '-infinity'
 WHERE owner = $1 AND shard = ANY($2::smallint[]) AND lease_until > clock_timestamp()`

// release gives back the lane's surplus shards. The lane itself calls it,
// between two batches: a shard released in the middle of a batch would have
// two relays publishing it at once.
func (l *shardLeases) release(ctx context.Context, lane int) error {
	l.asking.Lock()
	defer l.asking.Unlock()
	l.mu.Lock()
	var shards []int16
	for shard := range l.leaving {
		if int(shard)%lanes == lane {
			shards = append(shards, shard)
			delete(l.leaving, shard)
			delete(l.held, shard)
		}
	}
	l.mu.Unlock()
	if len(shards) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.term/4)
	defer cancel()
	_, err := l.pool.Exec(ctx, sqlReleaseShards, l.owner, shards)
	return err
}

// sqlForgetRelay also sweeps up after relays that could not say goodbye.
const sqlForgetRelay = `DELETE FROM relay_member WHERE relay = $1 OR seen_until < clock_timestamp() - interval '1 hour'`

// releaseAll is for a clean stop: others take over at once instead of after
// the lease. If it fails, they take over after it.
func (l *shardLeases) releaseAll(ctx context.Context) {
	for lane := range l.lanes { // wait for the last batches
		l.lanes[lane].Lock()
		defer l.lanes[lane].Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // from here: the wait must not use it up
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	shards := make([]int16, 0, len(l.held))
	for shard := range l.held {
		shards = append(shards, shard)
	}
	clear(l.held)
	if _, err := l.pool.Exec(ctx, sqlReleaseShards, l.owner, shards); err == nil {
		_, _ = l.pool.Exec(ctx, sqlForgetRelay, l.owner) // it would be forgotten after its time anyway
	}
}

// holding returns the shards of each lane.
func (l *shardLeases) holding() (of [lanes]ShardSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard := range l.held {
		of[int(shard)%lanes] = of[int(shard)%lanes].With(int(shard))
	}
	return of
}

// A batchLease is the right to publish one batch of a lane's shards.
type batchLease struct {
	shards []int16
	epochs map[int16]int64
	until  time.Time // the earliest end among them; every publish must be answered by then
	end    func()
}

// begin takes the lane's shards for one batch; the caller must call end, also
// after an error. Shards too close to the end of their lease are left out.
func (l *shardLeases) begin(ctx context.Context, lane int) (batchLease, error) {
	l.lanes[lane].Lock()
	b := batchLease{epochs: map[int16]int64{}, end: l.lanes[lane].Unlock}
	if err := l.release(ctx, lane); err != nil {
		return b, fmt.Errorf("give back shards: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for shard, lease := range l.held {
		if int(shard)%lanes != lane || l.leaving[shard] || !now.Before(lease.until.Add(-l.margin)) {
			continue
		}
		b.shards = append(b.shards, shard)
		b.epochs[shard] = lease.epoch
		if b.until.IsZero() || lease.until.Before(b.until) {
			b.until = lease.until
		}
	}
	return b, nil
}

func (l *shardLeases) query(ctx context.Context, sent time.Time, sql string, args ...any) (map[int16]shardLease, error) {
	rows, err := l.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	leases := map[int16]shardLease{}
	var shard int16
	var epoch int64
	_, err = pgx.ForEachRow(rows, []any{&shard, &epoch}, func() error {
		leases[shard] = shardLease{epoch: epoch, until: sent.Add(l.term)}
		return nil
	})
	return leases, err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
