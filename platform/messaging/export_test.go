package messaging

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What tests of the SQL and of the decoding need to see.
const (
	SQLPinPlans    = sqlPinPlans
	SQLReadPending = sqlReadPending
)

var (
	ParseEnvelope = parseEnvelope
	ScanEnvelope  = scanEnvelope
)

// HorizonKnownAfter returns how far back the active replica of a consumer takes
// the inbox to remember, when meanwhile has happened since it took its place
// and it has renewed that once.
func HorizonKnownAfter(ctx context.Context, pool *pgxpool.Pool, meanwhile func()) (time.Time, error) {
	p := newConsumerPlace(pool, "writer", "r1", time.Minute)
	if err := p.take(ctx); err != nil {
		return time.Time{}, err
	}
	meanwhile()
	if p.lost(ctx) {
		return time.Time{}, errPlaceLost
	}
	return time.UnixMicro(p.since.Load()), nil
}
