package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River used as an outbox: a job is inserted in the business transaction, and
// its worker publishes. https://riverqueue.com/docs/transactional-enqueueing
// A queue of jobs keeps no order, and does not claim to.

type riverSetup struct {
	workers  int
	cooldown time.Duration // between two fetches; 0 is the library's default, 100 ms
	poll     time.Duration // when nobody notifies; 0 is the library's default, 1 s
}

var (
	riverDefaults = riverSetup{workers: 100}
	riverTuned    = riverSetup{workers: 2000, cooldown: 2 * time.Millisecond, poll: 10 * time.Millisecond}
)

// publishJob is an event as a job.
type publishJob struct {
	EventID string          `json:"event_id"`
	Subject string          `json:"subject"`
	Body    json.RawMessage `json:"body"`
}

func (publishJob) Kind() string { return "publish_event" }

type publishWorker struct {
	river.WorkerDefaults[publishJob]
	js jetstream.JetStream
}

func (w *publishWorker) Work(ctx context.Context, job *river.Job[publishJob]) error {
	_, err := w.js.PublishMsg(ctx, &nats.Msg{Subject: job.Args.Subject, Data: job.Args.Body,
		Header: nats.Header{jetstream.MsgIDHeader: {job.Args.EventID}}})
	return err
}

// river drains n events with jobs.
func (s *stand) river(b *broker, setup riverSetup, n int) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		db, drop, err := s.newDatabase(ctx, "messaging")
		if err != nil {
			return nil, err
		}
		defer drop()
		pool, err := db.open(ctx, 40)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		nc, js, err := connect(b.url, inFlight)
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		client, err := setup.client(ctx, pool, js)
		if err != nil {
			return nil, err
		}
		defer client.Stop(context.WithoutCancel(ctx)) //nolint:errcheck // what it has done is checked in its table
		w := s.events.first(n)
		return s.drainOf(ctx, b, w, drainSteps{
			stage: func() error { return insertJobs(ctx, client, w) },
			settle: func() error {
				_, err := pool.Exec(ctx, "ANALYZE river_job")
				return err
			},
			drain: func(started func()) error {
				started()
				if err := client.Start(ctx); err != nil {
					return fmt.Errorf("start river: %w", err)
				}
				return poll(ctx, 5*time.Millisecond, func() (bool, error) { return riverDone(ctx, b, pool, len(w.messages)) })
			},
		})
	}
}

// client migrates the database for river and returns its client.
func (setup riverSetup) client(ctx context.Context, pool *pgxpool.Pool, js jetstream.JetStream) (*river.Client[pgx.Tx], error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrate river: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &publishWorker{js: js})
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: setup.workers}},
		Workers: workers, FetchCooldown: setup.cooldown, FetchPollInterval: setup.poll,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

func insertJobs(ctx context.Context, client *river.Client[pgx.Tx], w *work) error {
	for batch := range slices.Chunk(w.messages, stageBatch) {
		jobs := make([]river.InsertManyParams, len(batch))
		for i, m := range batch {
			jobs[i].Args = publishJob{m.ID.String(), m.Subject, m.Data}
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
	}
	return nil
}

// riverDone reports whether the stream has every event and every job is
// completed, which is river's evidence. Jobs are completed in the background,
// a moment after their work.
func riverDone(ctx context.Context, b *broker, pool *pgxpool.Pool, n int) (bool, error) {
	if have, err := b.stored(ctx); err != nil || have < n {
		return false, err
	}
	open, err := single(ctx, pool, `SELECT count(*) FROM (SELECT FROM river_job WHERE state IN ('available', 'running', 'retryable') LIMIT 1) j`)
	return open == 0, err
}
