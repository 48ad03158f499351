package messaging

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// observeTimeout bounds what one collection of the gauges may cost. A database
// that is away leaves gaps in them, and its own alarms.
const observeTimeout = 2 * time.Second

// backlogMeters are what is unfinished, read from the database when somebody
// collects it: a count that every process kept for itself would be wrong in
// each of them.
type backlogMeters struct {
	pending, hottest, held, relays metric.Int64ObservableGauge
	oldest                         metric.Float64ObservableGauge
	unresolved, overdue, active    metric.Int64ObservableGauge
	oldestFailure                  metric.Float64ObservableGauge
}

func newBacklogMeters(meter metric.Meter) (m backlogMeters, err error) {
	var errs [9]error
	m.pending, errs[0] = meter.Int64ObservableGauge("shop_outbox_pending",
		metric.WithDescription("Events in the queue of the outbox."))
	m.oldest, errs[1] = meter.Float64ObservableGauge("shop_outbox_oldest", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest event of the queue has been waiting."))
	m.hottest, errs[2] = meter.Int64ObservableGauge("shop_outbox_hottest_shard",
		metric.WithDescription("Events in the longest queue of one shard: far above the average, one aggregate is busy or stuck."))
	m.held, errs[3] = meter.Int64ObservableGauge("shop_outbox_held_events",
		metric.WithDescription("Events out of the queue: failed, which a person must release, and waiting behind them or for their time."))
	m.relays, errs[4] = meter.Int64ObservableGauge("shop_outbox_relays",
		metric.WithDescription("Relays that serve the database."))
	m.unresolved, errs[5] = meter.Int64ObservableGauge("shop_consumer_unresolved",
		metric.WithDescription("Events that a consumer could not apply yet: retrying, parked, gap, and dead_letter, which a person must settle."))
	m.overdue, errs[6] = meter.Int64ObservableGauge("shop_consumer_overdue",
		metric.WithDescription("Dead letters that nobody has settled in time."))
	m.oldestFailure, errs[7] = meter.Float64ObservableGauge("shop_consumer_oldest_failure", metric.WithUnit("s"),
		metric.WithDescription("Since the oldest unresolved failure."))
	m.active, errs[8] = meter.Int64ObservableGauge("shop_consumer_active",
		metric.WithDescription("1 while a replica has the consumer's place."))
	return m, errors.Join(errs[:]...)
}

// ObserveBacklog exports what is unfinished in a database as gauges, until it
// is unregistered. database labels them. Every replica exports the same, so
// take the maximum and not the sum.
func ObserveBacklog(provider metric.MeterProvider, database string, h *History) (metric.Registration, error) {
	meter := provider.Meter(scope)
	m, err := newBacklogMeters(meter)
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, observeTimeout)
		defer cancel()
		b, err := h.Backlog(ctx)
		if err != nil {
			return err
		}
		m.observe(o, attribute.String("database", database), b)
		return nil
	}, m.pending, m.oldest, m.hottest, m.held, m.relays, m.unresolved, m.overdue, m.oldestFailure, m.active)
}

func (m backlogMeters) observe(o metric.Observer, database attribute.KeyValue, b Backlog) {
	at := metric.WithAttributes(database)
	o.ObserveInt64(m.pending, int64(b.Pending), at)
	o.ObserveFloat64(m.oldest, b.OldestPending.Seconds(), at)
	o.ObserveInt64(m.hottest, int64(b.HottestCount), at)
	o.ObserveInt64(m.held, int64(b.HeldFailed), metric.WithAttributes(database, attribute.String("state", "failed")))
	o.ObserveInt64(m.held, int64(b.HeldWaiting), metric.WithAttributes(database, attribute.String("state", "waiting")))
	o.ObserveInt64(m.relays, int64(b.Relays), at)
	for _, c := range b.Consumers {
		consumer := attribute.String("consumer", c.Consumer)
		for state, n := range map[string]int{"retrying": c.Retrying, "parked": c.Parked, "gap": c.Gaps, "dead_letter": c.DeadLetters} {
			o.ObserveInt64(m.unresolved, int64(n), metric.WithAttributes(consumer, attribute.String("state", state)))
		}
		of := metric.WithAttributes(consumer)
		o.ObserveInt64(m.overdue, int64(c.Overdue), of)
		o.ObserveFloat64(m.oldestFailure, c.OldestFailure.Seconds(), of)
		active := int64(0)
		if c.Active != "" {
			active = 1
		}
		o.ObserveInt64(m.active, active, of)
	}
}
