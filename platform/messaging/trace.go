package messaging

import (
	"context"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Every span of this package is named here, and every event on one.
//
// A batch and a group have many causes, so none of these is their only parent:
// they are linked to the creation of each of their events. What is told about
// an event is its id and codes, never what it says.
// https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/

// maxLinks bounds the links of a span. It is the SDK's own limit, above which
// it would drop the first of them.
const maxLinks = 128

// tracing is how a relay or a consumer refers to the traces of its events.
type tracing struct {
	tracer trace.Tracer
	child  bool // be a part of the first event's trace, beside the links
}

func newTracing(provider trace.TracerProvider, parent string) tracing {
	return tracing{provider.Tracer(scope), parent == traceChild}
}

// start opens a span about n events; created returns the trace context of the
// i-th one's creation. replayed says that they are brought again: then their
// old traces are linked to and never continued.
//
// Links are only made for who reads them: where nothing is recorded, a span
// costs next to nothing.
func (t tracing) start(ctx context.Context, name string, kind trace.SpanKind, n int, created func(i int) string, replayed bool,
	attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if t.child && !replayed {
		for i := range n {
			if parent := contextOf(created(i)); parent.IsValid() {
				ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
				break
			}
		}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(attribute.String("messaging.system", "nats"), attribute.Int("messaging.batch.message_count", n))
	span.SetAttributes(attributes...)
	links := 0
	for i := 0; i < n && links < maxLinks; i++ {
		if c := contextOf(created(i)); c.IsValid() {
			span.AddLink(trace.Link{SpanContext: c})
			links++
		}
	}
	return ctx, span
}

// SpanContext returns the trace context in which the event was made, for links
// from what is done because of it. It is invalid if the event carries none.
func (m Meta) SpanContext() trace.SpanContext { return contextOf(m.TraceParent) }

// contextOf reads a trace context as an envelope holds it; rubbish is none.
func contextOf(traceParent string) trace.SpanContext {
	if !validTraceParent(traceParent) {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": traceParent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// publishing opens the span of one batch on its way to the broker.
func (r *Relay) publishing(ctx context.Context, rows []pendingRow) (context.Context, trace.Span) {
	return r.tracing.start(ctx, "publish "+r.cfg.Database, trace.SpanKindProducer, len(rows), func(i int) string { return rows[i].TraceParent }, false,
		attribute.String("messaging.operation.type", "send"), attribute.String("messaging.operation.name", "publish"),
		attribute.String("shop.relay", r.cfg.Name))
}

// processing opens the span of one group on its way to its effects.
func (c *Consumer) processing(ctx context.Context, items []*item) (context.Context, trace.Span) {
	about := []attribute.KeyValue{attribute.String("messaging.operation.type", "process"), attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.consumer.group.name", c.name)}
	replay := ""
	if len(items) > 0 {
		replay = items[0].replay
	}
	if replay != "" {
		about = append(about, attribute.String("shop.replay_id", replay))
	}
	if len(items) == 1 {
		about = append(about, attribute.String("messaging.message.id", items[0].env.EventID.String()))
	}
	return c.tracing.start(ctx, "process "+c.name, trace.SpanKindConsumer, len(items), func(i int) string { return items[i].env.TraceParent }, replay != "", about...)
}

// What can happen to an event on its way, as events of the span.
const (
	spanRetry      = "shop.retry"       // it failed, or could not be committed, and is tried again after the delay
	spanParked     = "shop.parked"      // it waits behind another one; after the delay somebody looks
	spanDeadLetter = "shop.dead_letter" // it waits for a person
	spanHeld       = "shop.held"        // the broker did not take it; after the delay it is sent again
)

// happened notes what became of an event on the span of ctx. delay is negative
// where nothing will happen by itself.
func happened(ctx context.Context, what string, event *uuid.UUID, code string, delay time.Duration) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	about := []attribute.KeyValue{attribute.String("error.type", code)}
	if event != nil {
		about = append(about, attribute.String("shop.event_id", event.String()))
	}
	if delay >= 0 {
		about = append(about, attribute.Float64("shop.delay_seconds", delay.Seconds()))
	}
	span.AddEvent(what, trace.WithAttributes(about...))
}

// happened notes what was held of a batch.
func (h *heldRows) happened(ctx context.Context) {
	for i := range h.ids {
		happened(ctx, spanHeld, &h.eventIDs[i], h.states[i], h.delays[i])
	}
}
