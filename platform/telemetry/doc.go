// Package telemetry sets up what a process says about itself: logs, metrics
// and traces.
//
// [Start] is called once, by the process; everything else uses [log/slog] and
// the OpenTelemetry globals and so works, silently, where nothing was started.
//
//   - Logs are JSON lines on stderr. Every line that is written with a context
//     carries the trace_id and span_id of that context.
//   - Metrics are always collected; [Handler] serves them to Prometheus. They
//     go nowhere on their own.
//   - Traces leave the process only when OTEL_EXPORTER_OTLP_ENDPOINT is set,
//     by OTLP over HTTP. Without it nothing is recorded, but every request
//     still has a valid trace id, so that logs and problem documents of one
//     request can be found by it, in every process that it went through.
//
// No personal data may reach any of the three: no mail addresses, names,
// payloads or query strings, and as labels of metrics no ids at all.
package telemetry
