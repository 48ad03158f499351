package messaging

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/postgres"
)

// What tests of the SQL and of the decoding need to see.
const (
	SQLPinPlans    = sqlPinPlans
	SQLReadPending = sqlReadPending
	SQLMark        = sqlMark
)

var (
	ParseEnvelope = parseEnvelope
	ScanEnvelope  = scanEnvelope
)

// HorizonKnownAfter returns how far back the active replica of a consumer takes
// the inbox to remember, when meanwhile has happened since it took its place
// and it has renewed that once.
func HorizonKnownAfter(ctx context.Context, pool *pgxpool.Pool, meanwhile func()) (time.Time, error) {
	return horizonKnownAfter(ctx, pool, meanwhile, func(p *consumerPlace) error {
		if p.lost(ctx) {
			return errPlaceLost
		}
		return nil
	})
}

// HorizonKnownToAGroupAfter is HorizonKnownAfter for a replica of which only the
// groups' transactions get through.
func HorizonKnownToAGroupAfter(ctx context.Context, pool *pgxpool.Pool, meanwhile func()) (time.Time, error) {
	return horizonKnownAfter(ctx, pool, meanwhile, func(p *consumerPlace) error {
		return postgres.InTx(ctx, pool, func(tx pgx.Tx) error { return p.fence(ctx, tx) })
	})
}

func horizonKnownAfter(ctx context.Context, pool *pgxpool.Pool, meanwhile func(), renew func(*consumerPlace) error) (time.Time, error) {
	p := newConsumerPlace(pool, "writer", "r1", time.Minute)
	if err := p.take(ctx); err != nil {
		return time.Time{}, err
	}
	meanwhile()
	if err := renew(p); err != nil {
		return time.Time{}, err
	}
	return time.UnixMicro(p.since.Load()), nil
}

// BatchAfterReading returns how many events a relay's lane asks for first, and
// how many it would ask for next when it has read once within the time given.
func BatchAfterReading(ctx context.Context, pool *pgxpool.Pool, within time.Duration) (first, next int, err error) {
	relay, err := NewRelay(pool, nil, RelayConfig{})
	if err != nil {
		return 0, 0, err
	}
	l := &relayLane{Relay: relay}
	first = l.size()
	shards := make([]int16, Shards)
	for i := range shards {
		shards[i] = int16(i)
	}
	err = l.inSession(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		_, err := l.read(ctx, shards)
		return err
	})
	return first, l.batch, err
}

// A BatchAnswer is what a lane learns of one batch.
type BatchAnswer struct {
	Rows    int // that it found; less than it asked for when the queue is short
	Unknown int // how many of them had no answer
	Took    time.Duration
}

// BatchSizes returns how many events a lane asks for, one time after the other,
// when this is what becomes of its batches.
func BatchSizes(largest int, answers ...BatchAnswer) (sizes []int) {
	l := &relayLane{Relay: &Relay{cfg: RelayConfig{Batch: largest}}}
	for _, answer := range answers {
		l.asked = l.size()
		sizes = append(sizes, l.asked)
		receipts := make([]Receipt, min(answer.Rows, l.asked))
		for i := range min(answer.Unknown, len(receipts)) {
			receipts[i].Err = ErrUnknownOutcome
		}
		l.keepPace(receipts, answer.Took)
	}
	return append(sizes, l.size())
}

// AppendEnvelope is what writes an envelope.
func AppendEnvelope(e Envelope) ([]byte, error) { return appendEnvelope(nil, &e) }
