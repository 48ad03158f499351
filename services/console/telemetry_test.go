package console

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"orderpaid/platform/messaging/natsbroker"
)

// What one server alone never shows: a replica of the stream that is behind.
func TestTheBoardExportsHowFarAReplicaIsBehind(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	s := &Service{}
	s.board.Store(&Board{})
	observed, err := s.observeBoard(metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = observed.Unregister() }() // it never fails
	if got := exported(t, reader, "shop_stream_replica_lag"); len(got) != 0 {
		t.Errorf("got %v before anything was read, want nothing", got)
	}
	for _, lag := range []int64{0, 1700} {
		s.board.Store(&Board{At: time.Now(), Stream: natsbroker.Status{Lag: uint64(lag)}})
		if got := exported(t, reader, "shop_stream_replica_lag"); len(got) != 1 || got[0].Value != lag {
			t.Errorf("got %v, want %d", got, lag)
		}
	}
}

func exported(t *testing.T, reader *metric.ManualReader, name string) []metricdata.DataPoint[int64] {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if gauge, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == name {
				return gauge.DataPoints
			}
		}
	}
	return nil
}
