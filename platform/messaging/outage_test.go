package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/membroker"
	"orderpaid/platform/pgtest"
)

// C143: the database is away, and is asked several times a second. What that
// writes would hide everything else that is wrong, and fill a disk.
func TestAnOutageOfTheDatabaseIsNotAFloodOfLines(t *testing.T) {
	t.Parallel()
	base := pgtest.New(t, "messaging")
	for name, run := range map[string]func(*pgxpool.Pool, *slog.Logger) func(context.Context) error{
		"relay": func(pool *pgxpool.Pool, log *slog.Logger) func(context.Context) error {
			relay, err := messaging.NewRelay(pool, newRecorder(), messaging.RelayConfig{Lease: time.Second, Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			return relay.Run
		},
		"consumer": func(pool *pgxpool.Pool, log *slog.Logger) func(context.Context) error {
			broker := membroker.New(messaging.Subscription{Durable: "writer", Kinds: []messaging.Kind{changed{}.Kind()}})
			return messaging.NewConsumer("writer", pool, broker, messaging.ConsumerConfig{Logger: log}).Run
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked, lines atomic.Int64
			background(t, run(unreachable(t, base, &asked), slog.New(slog.NewTextHandler(counting{&lines}, nil))))
			enough := int64(map[string]int{"relay": 40, "consumer": 7}[name])
			eventually(t, 30*time.Second, func() string { return fmt.Sprintf("asked %d times, want %d", asked.Load(), enough) },
				func() bool { return asked.Load() >= enough })
			if lines := lines.Load(); lines < 1 || lines > 2 {
				t.Errorf("%d attempts wrote %d lines, want 1 or 2", asked.Load(), lines)
			}
		})
	}
}

// unreachable is a pool of connections that are never made.
func unreachable(t *testing.T, base *pgxpool.Pool, asked *atomic.Int64) *pgxpool.Pool {
	t.Helper()
	cfg := base.Config()
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		asked.Add(1)
		return errors.New("no route to host")
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

type counting struct{ lines *atomic.Int64 }

func (c counting) Write(b []byte) (int, error) {
	c.lines.Add(1)
	return len(b), nil
}
