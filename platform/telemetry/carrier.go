package telemetry

import (
	"maps"
	"slices"
)

// Carrier moves trace context in the headers of a broker's messages:
// telemetry.Carrier(msg.Header).
//
// NATS headers are case-sensitive, and the W3C names are lower case on every
// wire. The carrier that OpenTelemetry has for HTTP would write "Traceparent",
// which no other reader of the stream finds.
// https://www.w3.org/TR/trace-context/#header-name
type Carrier map[string][]string

// Get returns the first value of the header with exactly this name.
func (c Carrier) Get(key string) string {
	if values := c[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set replaces the header. c must not be nil.
func (c Carrier) Set(key, value string) { c[key] = []string{value} }

// Keys returns the names of all headers, in no order.
func (c Carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }
