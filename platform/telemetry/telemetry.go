package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Config says who reports. The zero value reports as "unknown".
type Config struct {
	Service  string     // name of the program, for example "points". Defaults to "unknown".
	Version  string     // of the program. Defaults to "unknown".
	LogLevel slog.Level // the least that is logged. Defaults to slog.LevelInfo.
	LogTo    io.Writer  // where log lines go. Defaults to os.Stderr.
}

// Start makes the process observable: it sets the default logger, the
// OpenTelemetry providers, the W3C propagators, and what [Handler] serves.
//
// It touches the network only in the background. An exporter that cannot reach
// its collector is reported through the logger and slows nothing down.
//
// shutdown sends what is still buffered; give it a context with a deadline.
func Start(ctx context.Context, cfg Config) (shutdown func(context.Context) error, err error) {
	if cfg.Service == "" {
		cfg.Service = "unknown"
	}
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	if cfg.LogTo == nil {
		cfg.LogTo = os.Stderr
	}
	slog.SetDefault(newLogger(cfg))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		slog.Warn("telemetry could not be recorded or exported", "error", err)
	}))
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))

	res, err := describe(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("telemetry: describe %s: %w", cfg.Service, err)
	}
	registry := prometheus.NewRegistry()
	meters, err := newMeterProvider(registry, res)
	if err != nil {
		return nil, fmt.Errorf("telemetry: metrics of %s: %w", cfg.Service, err)
	}
	tracers, err := newTracerProvider(ctx, res)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: traces of %s: %w", cfg.Service, err), meters.Shutdown(ctx))
	}
	current.Store(registry)
	otel.SetMeterProvider(meters)
	otel.SetTracerProvider(tracers)

	return func(ctx context.Context) error {
		return errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx))
	}, nil
}

// describe names the process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
// come last, so that whoever runs it has the last word.
func describe(ctx context.Context, cfg Config) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.namespace", "orderpaid"),
			attribute.String("service.name", cfg.Service),
			attribute.String("service.version", cfg.Version),
		),
		resource.WithFromEnv(),
	)
}

// newTracerProvider exports when there is somewhere to export to; the SDK
// then also reads OTEL_TRACES_SAMPLER and the OTEL_BSP_* limits itself.
//
// Otherwise new traces are not recorded. A caller's decision to sample is
// passed on all the same: this process may be the only one on the way that has
// no collector.
func newTracerProvider(ctx context.Context, res *resource.Resource) (*sdktrace.TracerProvider, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return sdktrace.NewTracerProvider(
			sdktrace.WithResource(res),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		), nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter)), nil
}
