package messaging

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Every metric of this package is named here. Labels are names of databases,
// consumers, kinds and results: never an id of an order or a user, of which
// there is no end.

const scope = "orderpaid/platform/messaging"

// relayMeters are the metrics of one relay's one database.
type relayMeters struct {
	database attribute.KeyValue
	attempts metric.Int64Counter     // by result
	lag      metric.Float64Histogram // created to acknowledged
	holds    metric.Int64Counter     // by state
	size     metric.Int64Histogram   // bytes of each event
	calls    metric.Float64Histogram // seconds per batch
	sent     metric.Int64Counter     // as the semantic conventions count

	conventional, of metric.MeasurementOption
}

func newRelayMeters(provider metric.MeterProvider, database string) (relayMeters, error) {
	meter := provider.Meter(scope)
	m := relayMeters{database: attribute.String("database", database)}
	m.of = metric.WithAttributeSet(attribute.NewSet(m.database))
	m.conventional = metric.WithAttributeSet(attribute.NewSet(m.database, attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.name", "publish")))
	var errs [6]error
	m.attempts, errs[0] = meter.Int64Counter("shop_outbox_publish_attempts",
		metric.WithDescription("Events handed to the broker, by what it answered."))
	m.lag, errs[1] = meter.Float64Histogram("shop_outbox_publish_lag", metric.WithUnit("s"),
		metric.WithDescription("From staging an event to its acknowledgement by the broker."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300))
	m.holds, errs[2] = meter.Int64Counter("shop_outbox_held",
		metric.WithDescription("Events taken out of the queue because the broker did not take them, by state."))
	m.size, errs[3] = meter.Int64Histogram("shop_event_size", metric.WithUnit("By"),
		metric.WithDescription("Size of the events that are published."),
		metric.WithExplicitBucketBoundaries(256, 512, 1024, 2048, 4096, 16384, 65536, 262144))
	m.calls, errs[4] = meter.Float64Histogram("messaging.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Time until the broker has answered for one batch."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5))
	m.sent, errs[5] = meter.Int64Counter("messaging.client.sent.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Events handed to the broker, whatever it answered."))
	return m, errors.Join(errs[:]...)
}

// called notes one call of the publisher.
func (m relayMeters) called(ctx context.Context, messages []Message, took time.Duration) {
	m.calls.Record(ctx, took.Seconds(), m.conventional)
	m.sent.Add(ctx, int64(len(messages)), m.conventional)
	for i := range messages {
		m.size.Record(ctx, int64(len(messages[i].Data)), m.of)
	}
}

// published counts a batch by what became of its events: one label set for
// each result, not for each event.
func (m relayMeters) published(ctx context.Context, receipts []Receipt) {
	results := map[string]int64{}
	for i := range receipts {
		results[receiptResult(receipts[i])]++
	}
	for result, n := range results {
		m.attempts.Add(ctx, n, metric.WithAttributes(m.database, attribute.String("result", result)))
	}
}

func (m relayMeters) marked(ctx context.Context, createdAt []time.Time) {
	now := time.Now()
	for _, t := range createdAt {
		m.lag.Record(ctx, max(0, now.Sub(t).Seconds()), m.of) // never negative, whatever the clocks say
	}
}

func (m relayMeters) held(ctx context.Context, states []string) {
	for _, state := range states {
		m.holds.Add(ctx, 1, metric.WithAttributes(m.database, attribute.String("state", state)))
	}
}

func receiptResult(r Receipt) string {
	switch {
	case r.Err == nil && r.Duplicate:
		return "duplicate"
	case r.Err == nil:
		return "stored"
	case errors.Is(r.Err, ErrRefused):
		return "refused"
	case errors.Is(r.Err, ErrUnknownOutcome):
		return "unknown"
	case errors.Is(r.Err, ErrBehind):
		return "behind"
	default:
		return "unavailable"
	}
}

// consumerMeters are the metrics of one consumer.
type consumerMeters struct {
	consumer attribute.KeyValue
	// conventional labels what has a name in the semantic conventions.
	// https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/
	conventional attribute.Set

	events   metric.Int64Counter     // by kind and result
	retries  metric.Int64Counter     // by class
	failures metric.Int64Counter     // by code
	full     metric.Int64Counter     // groups that met the bound of parked events
	pauses   metric.Int64Counter     // by the code that most events failed with
	age      metric.Float64Histogram // occurred_at to commit, the objective of the whole system
	groups   metric.Float64Histogram // seconds per group
	database metric.Float64Histogram // seconds per transaction
	consumed metric.Int64Counter     // deliveries, copies included
	again    metric.Int64Counter     // of them, not the first of their message
	sizes    metric.Int64Histogram   // events per group
}

func newConsumerMeters(provider metric.MeterProvider, consumer string) (consumerMeters, error) {
	meter := provider.Meter(scope)
	m := consumerMeters{consumer: attribute.String("consumer", consumer), conventional: attribute.NewSet(attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.name", "process"), attribute.String("messaging.consumer.group.name", consumer))}
	var errs [11]error
	m.events, errs[0] = meter.Int64Counter("shop_consumer_events",
		metric.WithDescription("Events brought to their end, by kind and result (applied, duplicate, stale, expired or the handler's word)."))
	m.retries, errs[1] = meter.Int64Counter("shop_consumer_retries",
		metric.WithDescription("Transactions repeated and events handed back, by class."))
	m.failures, errs[2] = meter.Int64Counter("shop_consumer_dead_letters",
		metric.WithDescription("Dead letters recorded, by error code."))
	m.age, errs[3] = meter.Float64Histogram("shop_event_age_at_effect", metric.WithUnit("s"),
		metric.WithDescription("From the moment a fact became true to the commit of its effect."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600))
	m.groups, errs[4] = meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"),
		metric.WithDescription("Time to bring one group of deliveries to its end."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	m.sizes, errs[5] = meter.Int64Histogram("shop_consumer_group_size",
		metric.WithDescription("Deliveries in one group."), metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 25, 50, 100, 250, 500, 1000))
	m.full, errs[6] = meter.Int64Counter("shop_consumer_parking_full",
		metric.WithDescription("Groups with events that could not be parked, because too many are."))
	m.database, errs[7] = meter.Float64Histogram("shop_consumer_transaction_duration", metric.WithUnit("s"),
		metric.WithDescription("Time that a group's transactions take in the database, handlers included."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	m.consumed, errs[8] = meter.Int64Counter("messaging.client.consumed.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Deliveries taken from the broker, copies included."))
	m.again, errs[9] = meter.Int64Counter("shop_consumer_redeliveries",
		metric.WithDescription("Deliveries of messages that had been delivered before."))
	m.pauses, errs[10] = meter.Int64Counter("shop_consumer_pauses",
		metric.WithDescription("Times that a consumer stood still because most events failed with one cause, by error code."))
	return m, errors.Join(errs[:]...)
}

// An outcome is what one series of shop_consumer_events counts.
type outcome struct{ kind, traffic, result string }

// done counts what came to its end, a group at a time: label sets are made for
// each outcome and not for each event.
func (m consumerMeters) done(ctx context.Context, items ...*item) {
	outcomes, ofKind := map[outcome]int64{}, map[string]metric.MeasurementOption{}
	now := time.Now()
	for _, it := range items {
		if it.waiting {
			continue
		}
		traffic := "live"
		if it.replay != "" {
			traffic = "replay"
		}
		outcomes[outcome{it.kind, traffic, it.result}]++
		if copies := len(it.deliveries) - 1; copies > 0 {
			outcomes[outcome{it.kind, traffic, "duplicate"}] += int64(copies)
		}
		if it.skipped || it.replay != "" { // a replay says nothing about how fresh effects are
			continue
		}
		if ofKind[it.kind] == nil {
			ofKind[it.kind] = metric.WithAttributes(m.consumer, attribute.String("kind", it.kind))
		}
		m.age.Record(ctx, max(0, now.Sub(it.env.OccurredAt).Seconds()), ofKind[it.kind])
	}
	for o, n := range outcomes {
		m.events.Add(ctx, n, metric.WithAttributes(m.consumer, attribute.String("kind", o.kind),
			attribute.String("traffic", o.traffic), attribute.String("result", o.result)))
	}
}

func (m consumerMeters) retried(ctx context.Context, class string) {
	m.retries.Add(ctx, 1, metric.WithAttributes(m.consumer, attribute.String("class", class)))
}

func (m consumerMeters) parkingFull(ctx context.Context) {
	m.full.Add(ctx, 1, metric.WithAttributes(m.consumer))
}

func (m consumerMeters) stoodStill(ctx context.Context, code string) {
	m.pauses.Add(ctx, 1, metric.WithAttributes(m.consumer, attribute.String("code", code)))
}

func (m consumerMeters) buried(ctx context.Context, code string) {
	m.failures.Add(ctx, 1, metric.WithAttributes(m.consumer, attribute.String("code", code)))
}

func (m consumerMeters) group(ctx context.Context, size, redelivered int, took time.Duration) {
	attrs := metric.WithAttributeSet(attribute.NewSet(m.consumer))
	m.groups.Record(ctx, took.Seconds(), metric.WithAttributeSet(m.conventional))
	m.consumed.Add(ctx, int64(size), metric.WithAttributeSet(m.conventional))
	m.sizes.Record(ctx, int64(size), attrs)
	if redelivered > 0 {
		m.again.Add(ctx, int64(redelivered), attrs)
	}
}

func (m consumerMeters) transaction(ctx context.Context, took time.Duration) {
	m.database.Record(ctx, took.Seconds(), metric.WithAttributeSet(attribute.NewSet(m.consumer)))
}
