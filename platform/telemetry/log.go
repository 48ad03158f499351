package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

func newLogger(cfg Config) *slog.Logger {
	lines := slog.NewJSONHandler(cfg.LogTo, &slog.HandlerOptions{Level: cfg.LogLevel})
	return slog.New(traced{lines}).With("service", cfg.Service)
}

// traced adds the ids of the context's trace to each line, so that a log line
// leads to its trace and a problem document's trace_id leads to the log line.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record.AddAttrs(
			slog.String("trace_id", span.TraceID().String()),
			slog.String("span_id", span.SpanID().String()),
		)
	}
	return h.Handler.Handle(ctx, record)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }
func (h traced) WithGroup(name string) slog.Handler       { return traced{h.Handler.WithGroup(name)} }
