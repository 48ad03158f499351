package notify

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Every metric of this package is named here.

// deliveryMeters are the metrics of sending.
type deliveryMeters struct {
	attempts metric.Int64Counter
	duration metric.Float64Histogram
}

func newDeliveryMeters(provider metric.MeterProvider) (deliveryMeters, error) {
	meter := provider.Meter("orderpaid/services/notify")
	var m deliveryMeters
	var errs [2]error
	m.attempts, errs[0] = meter.Int64Counter("shop_notify_attempts",
		metric.WithDescription("Attempts to send a mail, by how they ended."))
	m.duration, errs[1] = meter.Float64Histogram("shop_notify_attempt_duration", metric.WithUnit("s"),
		metric.WithDescription("From the first byte of an attempt to its outcome."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	return m, errors.Join(errs[:]...)
}

func (m deliveryMeters) attempt(ctx context.Context, o Outcome, took time.Duration) {
	labels := metric.WithAttributes(attribute.String("outcome", string(o)))
	m.attempts.Add(ctx, 1, labels)
	m.duration.Record(ctx, took.Seconds(), labels)
}
