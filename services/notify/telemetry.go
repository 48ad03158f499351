package notify

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Every metric and every span of this package is named here.

const scope = "orderpaid/services/notify"

// deliveryMeters are the metrics of sending.
type deliveryMeters struct {
	attempts metric.Int64Counter
	duration metric.Float64Histogram
}

func newDeliveryMeters(provider metric.MeterProvider) (deliveryMeters, error) {
	meter := provider.Meter(scope)
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

// startSpan opens the span of one attempt to send, linked to the trace of the
// payment that the mail is about, or a part of it.
func (c DeliveryConfig) startSpan(ctx context.Context, t claimed) (context.Context, trace.Span) {
	paid := t.cause.SpanContext()
	if c.TraceParent == "child" && paid.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, paid)
	}
	return c.Tracers.Tracer(scope).Start(ctx, "send mail", trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(trace.Link{SpanContext: paid}),
		trace.WithAttributes(attribute.String("shop.notification_id", t.ID), attribute.Int("shop.attempt", t.Attempts+1)))
}

// told notes how an attempt ended and, if there will be another, when.
func told(span trace.Span, r Result, s Step) {
	span.SetAttributes(attribute.String("shop.outcome", string(r.Outcome)), attribute.String("shop.mail.state", string(s.State)))
	if s.State == Queued {
		span.AddEvent("shop.retry", trace.WithAttributes(attribute.String("error.type", s.Code), attribute.Float64("shop.delay_seconds", s.Delay.Seconds())))
	}
}
