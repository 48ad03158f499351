package points

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
)

// A Service books points and tells what was booked. What it books it learns
// from events (consume.go); people can only read.
type Service struct {
	pool   *pgxpool.Pool
	outbox *messaging.Outbox
}

// NewService returns the service on a migrated database.
func NewService(pool *pgxpool.Pool, outbox *messaging.Outbox) *Service {
	return &Service{pool: pool, outbox: outbox}
}

// Balance returns what the user has. A user nobody has heard of has zero: he
// may be about to earn.
func (s *Service) Balance(ctx context.Context, userID string) (Balance, error) {
	return readBalance(ctx, s.pool, userID)
}

// Entries returns a page of the user's entries, newest first, that are older
// than the entry before (the newest page, if that is empty), and the entry
// before which the next page starts, or "" on the last page.
func (s *Service) Entries(ctx context.Context, userID, before string, limit int) (page []Entry, next string, err error) {
	if before == "" {
		before = behindAll
	}
	page, err = readEntries(ctx, s.pool, userID, before, limit+1) // one more tells whether this page is the last
	if err != nil || len(page) <= limit {
		return page, "", err
	}
	return page[:limit], page[limit-1].ID, nil
}
