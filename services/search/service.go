package search

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A Service keeps the index and answers from it.
type Service struct {
	pool *pgxpool.Pool
	slot slotFunc // where events go: the live slot, or the other one during a rebuild
}

// NewService returns the service on a migrated database.
func NewService(pool *pgxpool.Pool) *Service {
	return &Service{pool: pool, slot: liveSlot}
}

// Search returns a page of the orders that match, newest first.
//
// The order is by time and not by how well a text matches: all words must be
// there, so all matches are good ones; people look for what they bought
// lately; and a rank changes with every order that comes in, which would move
// orders between pages.
func (s *Service) Search(ctx context.Context, q Query) (Page, error) {
	// Read before the orders: the page is at least as fresh as it says.
	asOf, err := indexedAsOf(ctx, s.pool)
	if err != nil {
		return Page{}, err
	}
	page := Page{AsOf: asOf}
	lexemes := queryOf(q.Text)
	if q.Text != "" && lexemes == "" {
		return page, nil // only punctuation: nothing can hold it
	}
	docs, err := find(ctx, s.pool, lexemes, q, q.Limit+1)
	if err != nil {
		return Page{}, err
	}
	if len(docs) > q.Limit {
		docs = docs[:q.Limit]
		last := docs[q.Limit-1]
		page.Next = Position{last.CreatedAt, last.OrderID}
	}
	page.Orders = docs
	return page, nil
}
