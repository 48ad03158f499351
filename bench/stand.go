package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/pgserver"
	"orderpaid/platform/postgres"
)

// A sizing says how much work the cells do.
type sizing struct {
	runs     int
	events   int           // pending events of a drain
	slow     int           // the same for candidates that need a millisecond for each
	standing int           // published rows in the table while others are drained
	round    int           // events of one round while a transaction stays open
	payments int           // of a pay cell
	backlog  int           // what memory is measured with
	paced    time.Duration // how long 200 events a second are kept up
	hold     time.Duration // how long one rate of the whole path is tried
}

func fullSize() sizing {
	return sizing{runs: 5, events: 100_000, slow: 10_000, standing: 5_000_000, round: 50_000, payments: 40_000,
		backlog: 1_000_000, paced: 8 * time.Second, hold: 8 * time.Second}
}

// scaled makes the work smaller, down to what still says something.
func (z sizing) scaled(events, runs int) sizing {
	share := float64(events) / float64(z.events)
	less := func(n, floor int) int { return max(int(float64(n)*share), floor) }
	seconds := max(time.Duration(float64(z.paced)*share).Round(time.Second), 3*time.Second)
	return sizing{runs: runs, events: events, slow: less(z.slow, 500), standing: less(z.standing, 10_000), round: less(z.round, 1000),
		payments: less(z.payments, 1000), backlog: less(z.backlog, 5000), paced: seconds, hold: seconds}
}

// A stand is what everything runs on: a PostgreSQL and two nats-servers of its
// own, on the same disk, and the programs under test.
type stand struct {
	sizing
	dir   string // everything that is written lies here
	bin   string // the programs
	pg    *pgserver.Server
	admin *pgxpool.Pool

	always    *broker // sync_interval: always, as this project deploys it
	lazy      *broker // the server's default: synced every two minutes
	templates map[string]bool
	databases int
	events    *work // what every drain has to publish
}

// newStand starts the servers. The caller must call stop, also after an error.
func newStand(ctx context.Context, dir, bin string, z sizing) (*stand, error) {
	s := &stand{sizing: z, bin: bin, templates: map[string]bool{}}
	var err error
	if s.dir, err = filepath.Abs(dir); err != nil {
		return s, err
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "log"), 0o755); err != nil {
		return s, fmt.Errorf("make the stand's folder: %w", err)
	}
	if s.pg, err = pgserver.Start(ctx, pgserver.Config{Dir: filepath.Join(s.dir, "pg"), SharedBuffersMB: sharedBuffersMB(), Settings: map[string]string{
		// Checkpoints happen where a cell asks for one, before its clock
		// starts, and not in the middle of somebody's turn.
		"max_wal_size": "16GB", "min_wal_size": "2GB", "checkpoint_timeout": "1h", "wal_buffers": "16MB",
	}}); err != nil {
		return s, err
	}
	if s.admin, err = pgxpool.New(ctx, s.pg.DSN("postgres")); err != nil {
		return s, fmt.Errorf("connect as administrator: %w", err)
	}
	if err := s.checkDurable(ctx); err != nil {
		return s, err
	}
	if s.always, err = s.startBroker(ctx, "always"); err != nil {
		return s, err
	}
	if s.lazy, err = s.startBroker(ctx, "default"); err != nil {
		return s, err
	}
	s.events, err = s.newWork(ctx, s.sizing.events, burst)
	return s, err
}

// sharedBuffersMB is a quarter of the machine's memory, at most 1 GiB.
func sharedBuffersMB() int { return int(max(64, min(1024, memoryMB()/4))) }

// checkDurable refuses to measure a database that could lose a commit.
func (s *stand) checkDurable(ctx context.Context) error {
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var value string
		if err := s.admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return fmt.Errorf("read setting %s: %w", name, err)
		}
		if value != "on" {
			return fmt.Errorf("%s is %s: what is measured then is not what anybody should run", name, value)
		}
	}
	return nil
}

// stop ends the servers and removes their data: with five million rows it is
// gigabytes, and nobody reads it again.
func (s *stand) stop() error {
	if s.admin != nil {
		s.admin.Close()
	}
	for _, b := range []*broker{s.always, s.lazy} {
		if b != nil {
			b.process.stop()
			_ = os.RemoveAll(b.store)
		}
	}
	if s.pg == nil {
		return nil
	}
	err := s.pg.Stop()
	return errors.Join(err, os.RemoveAll(s.pg.Dir))
}

// A database of the stand, for one run of one cell.
type database struct {
	name string
	dsn  string
}

// newDatabase returns an empty, migrated database; drop removes it.
func (s *stand) newDatabase(ctx context.Context, owner string) (db database, drop func(), err error) {
	template := "template_" + owner
	if !s.templates[owner] {
		if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+template); err != nil {
			return db, nil, fmt.Errorf("create database %s: %w", template, err)
		}
		if err := postgres.Migrate(ctx, s.pg.DSN(template), owner); err != nil {
			return db, nil, err
		}
		s.templates[owner] = true
	}
	s.databases++
	db.name = fmt.Sprintf("%s_%d", owner, s.databases)
	db.dsn = s.pg.DSN(db.name)
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+db.name+" TEMPLATE "+template); err != nil {
		return db, nil, fmt.Errorf("create database %s: %w", db.name, err)
	}
	return db, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, _ = s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+db.name+" WITH (FORCE)") // the whole server goes soon
	}, nil
}

// open returns a pool with n connections that are there already: nobody's
// clock runs while sessions start.
func (d database) open(ctx context.Context, n int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(d.dsn)
	if err != nil {
		return nil, err
	}
	cfg.AfterConnect = postgres.RegisterTypes
	return openWith(ctx, cfg, n)
}

func openWith(ctx context.Context, cfg *pgxpool.Config, n int) (*pgxpool.Pool, error) {
	cfg.MaxConns, cfg.MinConns = int32(n), int32(n)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	conns := make([]*pgxpool.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			c.Release()
		}
	}()
	for range n {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, fmt.Errorf("open database: %w", err)
		}
		conns = append(conns, c)
	}
	return pool, nil
}

// checkpoint gives every candidate the same start: nothing left to write from
// the one before.
func (s *stand) checkpoint(ctx context.Context) error {
	if _, err := s.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// walPosition is how many bytes the server has ever written ahead.
func (s *stand) walPosition(ctx context.Context) (bytes int64, err error) {
	err = s.admin.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&bytes)
	if err != nil {
		return 0, fmt.Errorf("read WAL position: %w", err)
	}
	return bytes, nil
}

// completeOf is single for a check that joins all that a run has written. Without
// statistics of it, a plan may hold each row against each other: minutes.
func completeOf(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) (int64, error) {
	if _, err := pool.Exec(ctx, `ANALYZE`); err != nil {
		return 0, fmt.Errorf("analyze: %w", err)
	}
	return single(ctx, pool, sql, args...)
}

// single returns the one number that a query gives.
func single(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any) (n int64, err error) {
	if err = q.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", sql, err)
	}
	return n, nil
}
