package messaging

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ConsumerConfig tunes a [Consumer]. The zero value works.
type ConsumerConfig struct{}

// A Consumer applies events to one database.
type Consumer struct{}

// NewConsumer returns a consumer that will read the durable of its own name.
func NewConsumer(name string, pool *pgxpool.Pool, sub Subscriber, cfg ConsumerConfig) *Consumer {
	return nil
}

// Handle registers fn for the kind of T.
func Handle[T Payload](c *Consumer, fn func(ctx context.Context, tx pgx.Tx, ev Event[T]) error) {
}

// HandleBatch registers fn for the kind of T, called with up to a whole group.
func HandleBatch[T Payload](c *Consumer, fn func(ctx context.Context, tx pgx.Tx, evs []Event[T]) error) {
}

// EveryVersion makes the consumer apply each aggregate's events strictly by version.
func (c *Consumer) EveryVersion() {}

// Subscription returns what the consumer reads.
func (c *Consumer) Subscription() Subscription { return Subscription{} }

// Run consumes until ctx is done.
func (c *Consumer) Run(ctx context.Context) error { return nil }
