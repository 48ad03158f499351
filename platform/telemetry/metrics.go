package telemetry

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// maxSeries bounds the label sets of one instrument. More end up in one series
// that is marked otel_metric_overflow: a mistake with labels must cost a
// graph, not the memory of the process.
const maxSeries = 500

// current is the registry of the last Start. It is global for the reason that
// OpenTelemetry's providers are: a process has one /metrics.
var current atomic.Pointer[prometheus.Registry]

// newMeterProvider collects into registry, next to what the Go runtime and the
// operating system say about the process.
func newMeterProvider(registry *prometheus.Registry, res *resource.Resource) (*metric.MeterProvider, error) {
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	exporter, err := otelprometheus.New(
		otelprometheus.WithRegisterer(registry),
		otelprometheus.WithoutScopeInfo(), // the scope is a Go package name: a label that nobody queries
	)
	if err != nil {
		return nil, err
	}
	return metric.NewMeterProvider(
		metric.WithReader(exporter),
		metric.WithResource(res),
		metric.WithCardinalityLimit(maxSeries),
	), nil
}

// Handler serves the metrics of this process in the Prometheus formats. Before
// [Start] there are none.
func Handler() http.Handler {
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		registry := current.Load()
		if registry == nil {
			return nil, nil
		}
		return registry.Gather()
	})
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		EnableOpenMetrics:   true, // exemplars: from a slow bucket to its trace
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 3, // more scrapers are a mistake, and each holds a copy of everything
	})
}
