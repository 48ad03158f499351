package main

import (
	"fmt"
	"math"
	"strings"
)

// The sizing: what the measured costs mean for a shop of a given size. It is
// arithmetic on the result, so that it cannot disagree with the tables.

// How much of a part may be in use, so that a peak, a restart or a vacuum
// finds room.
const utilization = 0.5

// Of an order that is paid the full system makes four events: it was created,
// it was paid, points were awarded, a mail was sent. The measured path has the
// middle two.
const (
	eventsPerOrder = 4
	eventsMeasured = 2
)

// A demand is a shop by its paid orders.
type demand struct {
	name      string
	perMinute float64
}

var demands = []demand{{"10 000 a minute", 10_000}, {"1 000 000 a minute", 1_000_000}}

// sizing is the result as a table of what each demand needs, or "" if the
// cells that it rests on were not measured.
func (r Result) sizing() string {
	at := map[string]Reading{}
	for _, c := range r.Cells {
		at[c.Name] = c.Median
	}
	path, pay, batch, stream, relay := at["whole/sustained@always"], at["pay/http"], at["points/batch@always"], at["publish/atomic@always"], at["relay/1@always"]
	if path == nil || pay == nil || batch == nil || stream == nil || relay == nil {
		return ""
	}
	half := func(perSecond float64) float64 { return perSecond * utilization }
	rows := []struct {
		what string
		of   func(perSecond float64) float64
	}{
		{"paid orders a second", func(n float64) float64 { return n }},
		{"events a second", func(n float64) float64 { return n * eventsPerOrder }},
		{"cores that PostgreSQL uses", func(n float64) float64 { return n * path[cpuPostgres] / 1e6 }},
		{"cores that nats-server uses", func(n float64) float64 { return n * path[cpuNATS] / 1e6 * eventsPerOrder / eventsMeasured }},
		{"cores that services and relays use", func(n float64) float64 { return n * path[cpuOwn] / 1e6 }},
		{"WAL, MB a second", func(n float64) float64 { return n * path[walDrain] / 1e6 }},
		{"stream, GB a day", func(n float64) float64 { return n * eventsPerOrder * float64(r.Bytes) * 86400 / 1e9 }},
		{"order databases like this one, half busy", func(n float64) float64 { return math.Ceil(n / half(pay[rate])) }},
		{"outboxes, each drained by one relay, half busy", func(n float64) float64 { return math.Ceil(n * eventsPerOrder / half(relay[rate])) }},
		{"points databases like this one, half busy", func(n float64) float64 { return math.Ceil(n / half(batch[rate])) }},
		{"streams like this one, half busy", func(n float64) float64 { return math.Ceil(n * eventsPerOrder / half(stream[rate])) }},
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nWhat that means for a shop of so many paid orders:\n\n| |")
	for _, d := range demands {
		fmt.Fprintf(&b, " %s |", d.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(demands)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.what)
		for _, d := range demands {
			v := row.of(d.perMinute / 60)
			if v == math.Trunc(v) {
				fmt.Fprintf(&b, " %s |", thousands(int(v)))
			} else {
				fmt.Fprintf(&b, " %s |", figure(v))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
