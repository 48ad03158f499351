package console

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The board as metrics, for alarms and graphs: one reader of the broker and of
// the trail is enough for both. No id of an order or a user becomes a label.

const scope = "orderpaid/services/console"

type boardMeters struct {
	orders                         metric.Int64ObservableGauge
	unfinished                     metric.Float64ObservableGauge
	messages, bytes, maxBytes, lag metric.Int64ObservableGauge
	pending, inFlight, redelivered metric.Int64ObservableGauge
	ahead, silent                  metric.Int64ObservableGauge
	oldest                         metric.Float64ObservableGauge
}

func newBoardMeters(meter metric.Meter) (m boardMeters, err error) {
	var errs [12]error
	m.orders, errs[0] = meter.Int64ObservableGauge("shop_board_orders",
		metric.WithDescription("Orders by how far they are: paid, credited, mailed, indexed, unfinished; lost and duplicated must stay 0."))
	m.unfinished, errs[1] = meter.Float64ObservableGauge("shop_board_oldest_unfinished", metric.WithUnit("s"),
		metric.WithDescription("Since the oldest unfinished order was paid."))
	m.messages, errs[2] = meter.Int64ObservableGauge("shop_stream_messages", metric.WithDescription("Events that the stream holds."))
	m.bytes, errs[3] = meter.Int64ObservableGauge("shop_stream_size", metric.WithUnit("By"), metric.WithDescription("What the stream takes on disk."))
	m.maxBytes, errs[4] = meter.Int64ObservableGauge("shop_stream_size_limit", metric.WithUnit("By"),
		metric.WithDescription("The bound of it: then the oldest events are in danger, or new ones are refused."))
	m.lag, errs[5] = meter.Int64ObservableGauge("shop_stream_replica_lag", metric.WithDescription("Entries that the replica furthest behind lacks."))
	m.pending, errs[6] = meter.Int64ObservableGauge("shop_durable_pending", metric.WithDescription("Events that a consumer has never been given."))
	m.inFlight, errs[7] = meter.Int64ObservableGauge("shop_durable_in_flight", metric.WithDescription("Events given and not acknowledged."))
	m.redelivered, errs[8] = meter.Int64ObservableGauge("shop_durable_redelivered", metric.WithDescription("Of these, given more than once."))
	m.silent, errs[9] = meter.Int64ObservableGauge("shop_service_silent", metric.WithDescription("1 while a service's ops API, or the broker, does not answer."))
	m.oldest, errs[10] = meter.Float64ObservableGauge("shop_durable_oldest", metric.WithUnit("s"),
		metric.WithDescription("Since the stream got the oldest event that a consumer has not acknowledged."))
	m.ahead, errs[11] = meter.Int64ObservableGauge("shop_durable_ahead",
		metric.WithDescription("Sequences that a consumer has behind it and the stream has still to give: events that get them are skipped."))
	return m, errors.Join(errs[:]...)
}

// observeBoard exports the board until it is unregistered.
func (s *Service) observeBoard(provider metric.MeterProvider) (metric.Registration, error) {
	meter := provider.Meter(scope)
	m, err := newBoardMeters(meter)
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		m.observe(o, s.board.Load())
		return nil
	}, m.orders, m.unfinished, m.messages, m.bytes, m.maxBytes, m.lag, m.pending, m.inFlight, m.redelivered, m.silent, m.oldest, m.ahead)
}

func (m boardMeters) observe(o metric.Observer, b *Board) {
	if b.At.IsZero() {
		return // nothing has been read yet
	}
	for state, n := range map[string]int64{"paid": b.Tally.Paid, "credited": b.Tally.Credited, "mailed": b.Tally.Mailed, "indexed": b.Tally.Indexed,
		"unfinished": b.Tally.Unfinished, "duplicated": b.Tally.Duplicated, "lost": int64(b.Audit.Lost)} {
		o.ObserveInt64(m.orders, n, metric.WithAttributes(attribute.String("state", state)))
	}
	o.ObserveFloat64(m.unfinished, b.Tally.OldestSeconds)
	o.ObserveInt64(m.messages, int64(b.Stream.Messages))
	o.ObserveInt64(m.bytes, int64(b.Stream.Bytes))
	o.ObserveInt64(m.maxBytes, max(b.Stream.MaxBytes, 0))
	o.ObserveInt64(m.lag, int64(b.Stream.Lag))
	for _, c := range b.Stream.Consumers {
		of := metric.WithAttributes(attribute.String("durable", c.Durable))
		o.ObserveInt64(m.pending, int64(c.Pending), of)
		o.ObserveInt64(m.inFlight, int64(c.InFlight), of)
		o.ObserveInt64(m.redelivered, int64(c.Redelivered), of)
		o.ObserveInt64(m.ahead, int64(c.Ahead), of)
		age := 0.0
		if !c.OldestAt.IsZero() {
			age = max(0, b.At.Sub(c.OldestAt).Seconds()) // by two clocks
		}
		o.ObserveFloat64(m.oldest, age, of)
	}
	for _, service := range b.Services {
		o.ObserveInt64(m.silent, one(service.Silent), metric.WithAttributes(attribute.String("service", service.Name)))
	}
	o.ObserveInt64(m.silent, one(b.NoStream), metric.WithAttributes(attribute.String("service", "broker")))
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// observeDesk exports what waits for a person until it is unregistered.
func (s *Service) observeDesk(provider metric.MeterProvider) (metric.Registration, error) {
	meter := provider.Meter(scope)
	waiting, err := meter.Int64ObservableGauge("shop_decisions_waiting",
		metric.WithDescription("What only a person can decide: payments that no order shows, and mails of which nobody knows whether they arrived."))
	if err != nil {
		return nil, err
	}
	oldest, err := meter.Float64ObservableGauge("shop_decisions_oldest", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest of them has waited."))
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, p := range *s.piles.Load() {
			of := metric.WithAttributes(attribute.String("service", p.service), attribute.String("what", p.what))
			o.ObserveInt64(waiting, int64(p.waiting), of)
			age := 0.0
			if !p.oldest.IsZero() {
				age = max(0, time.Since(p.oldest).Seconds()) // by two clocks
			}
			o.ObserveFloat64(oldest, age, of)
		}
		return nil
	}, waiting, oldest)
}

// observe exports what the reconciliation has found until it is unregistered.
func (c *comparer) observe(provider metric.MeterProvider) (metric.Registration, error) {
	meter := provider.Meter(scope)
	age, err := meter.Float64ObservableGauge("shop_reconcile_age", metric.WithUnit("s"),
		metric.WithDescription("Since a reconciliation last looked at everything, or since the process began."))
	if err != nil {
		return nil, err
	}
	findings, err := meter.Int64ObservableGauge("shop_reconcile_findings",
		metric.WithDescription("Differences that the last reconciliation found, by check and by the service whose they are."))
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		last := c.last.Load()
		since := last.complete
		if since.IsZero() {
			since = c.began
		}
		o.ObserveFloat64(age, time.Since(since).Seconds())
		for d, n := range last.findings {
			o.ObserveInt64(findings, n, metric.WithAttributes(attribute.String("check", d.check), attribute.String("service", d.service)))
		}
		return nil
	}, age, findings)
}
