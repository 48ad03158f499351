package main

import (
	"strings"
	"testing"
)

func TestTheSizingIsTheMeasuredCostTimesTheDemand(t *testing.T) {
	t.Parallel()
	cells := []Measured{
		cellOf("whole/sustained@always", Reading{cpuPostgres: 600, cpuNATS: 60, cpuOwn: 300, walDrain: 6000}),
		cellOf("pay/http", Reading{rate: 2000}), cellOf("points/batch@always", Reading{rate: 30_000}),
		cellOf("publish/atomic@always", Reading{rate: 80_000}), cellOf("relay/1@always", Reading{rate: 50_000}),
	}
	got := Result{Bytes: 750, Cells: cells}.sizing()
	for _, want := range []string{
		"| paid orders a second | 167 | 16 667 |",
		"| cores that PostgreSQL uses | 0.10 | 10 |",
		"| cores that nats-server uses | 0.02 | 2.00 |",
		"| order databases like this one, half busy | 1 | 17 |",
		"| streams like this one, half busy | 1 | 2 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant a row %s", got, want)
		}
	}
	if got := (Result{Cells: cells[:4]}).sizing(); got != "" {
		t.Errorf("a cell is missing, and got\n%s", got)
	}
}
