package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging"
)

// Watermill's outbox: its publisher writes messages into a table per topic in
// the business transaction, its forwarder reads them and publishes to
// JetStream. https://watermill.io/advanced/forwarder/

type watermillSetup struct {
	topics int           // each has a table and a forwarder of its own; an order's events share a topic
	batch  int           // rows per query
	poll   time.Duration // when there was nothing; 0 is the library's default
}

var (
	watermillDefaults = watermillSetup{topics: 1}
	watermillTuned    = watermillSetup{topics: 8, batch: 1000, poll: 10 * time.Millisecond}
)

// watermill drains n events with the forwarder.
func (s *stand) watermill(b *broker, setup watermillSetup, n int) func(context.Context) (Reading, error) {
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
		w := s.events.first(n)
		return s.drainOf(ctx, b, w, drainSteps{
			stage: func() error { return setup.stage(pool, w) },
			settle: func() error {
				_, err := pool.Exec(ctx, "ANALYZE")
				return err
			},
			drain: func(started func()) error {
				stop, err := setup.forward(ctx, pool, b.url, started)
				if err != nil {
					return err
				}
				defer stop()
				return b.awaitStored(ctx, len(w.messages))
			},
		})
	}
}

// first returns the work's first n events.
func (w *work) first(n int) *work {
	part := &work{messages: w.messages[:min(n, len(w.messages))], places: map[uuid.UUID]place{}}
	for _, m := range part.messages {
		part.places[m.ID] = w.places[m.ID]
	}
	return part
}

func topicName(k int) string { return fmt.Sprintf("forward_%d", k) }

// stage creates the tables and writes the events through the library's own
// publisher, a batch at a time.
func (w watermillSetup) stage(pool *pgxpool.Pool, events *work) error {
	log := watermill.NopLogger{}
	sub, err := wsql.NewSubscriber(wsql.BeginnerFromPgx(pool), w.subscriber(), log)
	if err != nil {
		return err
	}
	defer sub.Close() //nolint:errcheck // nothing is in flight
	table, err := wsql.NewPublisher(wsql.BeginnerFromPgx(pool), wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}}, log)
	if err != nil {
		return err
	}
	for k := range w.topics {
		if err := sub.SubscribeInitialize(topicName(k)); err != nil {
			return fmt.Errorf("initialize topic %d: %w", k, err)
		}
		to := forwarder.NewPublisher(table, forwarder.PublisherConfig{ForwarderTopic: topicName(k)})
		if err := w.stageTopic(to, k, events); err != nil {
			return err
		}
	}
	return nil
}

// stageTopic writes those events whose aggregate belongs to topic k, subject
// by subject, because Publish takes one at a time. The events of an aggregate
// have one subject here, so their order stays.
func (w watermillSetup) stageTopic(to *forwarder.Publisher, k int, events *work) error {
	var subject string
	var run []*message.Message
	flush := func() error {
		if len(run) == 0 {
			return nil
		}
		err := to.Publish(subject, run...)
		run = nil
		return err
	}
	ours := slices.DeleteFunc(slices.Clone(events.messages), func(m messaging.Message) bool {
		return messaging.ShardOf(events.places[m.ID].aggregate)%w.topics != k
	})
	slices.SortStableFunc(ours, func(a, b messaging.Message) int { return strings.Compare(a.Subject, b.Subject) })
	for _, m := range ours {
		if m.Subject != subject || len(run) == 200 {
			if err := flush(); err != nil {
				return fmt.Errorf("stage: %w", err)
			}
		}
		subject = m.Subject
		run = append(run, message.NewMessage(m.ID.String(), message.Payload(m.Data)))
	}
	return flush()
}

func (w watermillSetup) subscriber() wsql.SubscriberConfig {
	return wsql.SubscriberConfig{ConsumerGroup: "forwarder", PollInterval: w.poll, InitializeSchema: true,
		SchemaAdapter: wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: w.batch}, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}}
}

// forward runs one forwarder for each topic.
func (w watermillSetup) forward(ctx context.Context, pool *pgxpool.Pool, url string, started func()) (stop func(), err error) {
	log := watermill.NopLogger{}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() { cancel(); running.Wait() }
	forwarders := make([]*forwarder.Forwarder, w.topics)
	for k := range forwarders {
		from, err := wsql.NewSubscriber(wsql.BeginnerFromPgx(pool), w.subscriber(), log)
		if err != nil {
			return stop, err
		}
		to, err := wnats.NewPublisher(wnats.PublisherConfig{URL: url, Marshaler: &wnats.NATSMarshaler{},
			JetStream: wnats.JetStreamConfig{TrackMsgId: true}}, log)
		if err != nil {
			return stop, err
		}
		if forwarders[k], err = forwarder.NewForwarder(from, to, log, forwarder.Config{ForwarderTopic: topicName(k), CloseTimeout: 2 * time.Second}); err != nil {
			return stop, err
		}
	}
	started()
	for _, f := range forwarders {
		running.Go(func() { _ = f.Run(ctx) }) // it ends with ctx; what it has done is on the stream
	}
	return stop, nil
}
