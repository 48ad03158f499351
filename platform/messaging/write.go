package messaging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"orderpaid/platform/strictjson"
)

// encode returns an envelope that every consumer can read: it makes the same
// checks as [parseEnvelope], without parsing again what was just written.
func encode(env Envelope) ([]byte, error) {
	if err := env.check(); err != nil {
		return nil, err
	}
	payload, err := appendEnvelope(make([]byte, 0, len(env.Data)+envelopeRoom), &env)
	switch {
	case err != nil:
		return nil, err
	case len(payload) > MaxEventBytes:
		return nil, Coded("too_large", fmt.Errorf("%d bytes, at most %d", len(payload), MaxEventBytes))
	case replaced(payload):
		return nil, Coded("bad_text", strictjson.ErrInvalidUTF8)
	}
	if err := strictjson.Check(payload); err != nil {
		return nil, Coded("bad_text", err)
	}
	return payload, nil
}

// envelopeRoom is more than the names and usual values of a [Meta] take.
const envelopeRoom = 640

// appendEnvelope writes what json.Marshal would, byte for byte, without parsing
// the data once more to see whether it is compact: json.Marshal has just made
// it. On a consumer that states an event for each one it applies, that was a
// third of what stands between two statements of its transaction.
func appendEnvelope(b []byte, e *Envelope) (_ []byte, err error) {
	b = append(b, `{"event_id":"`...)
	b = append(b, e.EventID.String()...)
	b = appendText(append(b, `","event_type":`...), e.EventType)
	b = strconv.AppendInt(append(b, `,"schema_version":`...), int64(e.SchemaVersion), 10)
	b = appendText(append(b, `,"aggregate_type":`...), e.AggregateType)
	b = appendText(append(b, `,"aggregate_id":`...), e.AggregateID)
	b = strconv.AppendInt(append(b, `,"aggregate_version":`...), e.AggregateVersion, 10)
	if b, err = appendTime(append(b, `,"occurred_at":`...), e.OccurredAt); err != nil {
		return nil, err
	}
	if !e.ExpiresAt.IsZero() {
		if b, err = appendTime(append(b, `,"expires_at":`...), e.ExpiresAt); err != nil {
			return nil, err
		}
	}
	b = appendText(append(b, `,"producer":`...), e.Producer)
	b = appendText(append(b, `,"tenant":`...), e.Tenant)
	b = appendText(append(b, `,"correlation_id":`...), e.CorrelationID)
	if e.CausationID != "" {
		b = appendText(append(b, `,"causation_id":`...), e.CausationID)
	}
	if e.TraceParent != "" {
		b = appendText(append(b, `,"trace_parent":`...), e.TraceParent)
	}
	b = append(append(b, `,"data":`...), e.Data...)
	return append(b, '}'), nil
}

// appendTime writes RFC 3339, and refuses what that has no form for.
func appendTime(b []byte, t time.Time) ([]byte, error) {
	b, err := t.AppendText(append(b, '"'))
	return append(b, '"'), err
}

// appendText writes a string, and leaves all that must be escaped to
// json.Marshal.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, _ := json.Marshal(s) // a string has a form, always
			return append(b, escaped...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// replaced reports whether json.Marshal has replaced invalid UTF-8: it writes
// the escape \ufffd for it, and a genuine U+FFFD as it is. A backslash that is
// itself escaped begins no escape.
func replaced(encoded []byte) bool {
	escape := []byte(`\ufffd`)
	for from := 0; ; {
		at := bytes.Index(encoded[from:], escape)
		if at < 0 {
			return false
		}
		at += from
		before := at
		for before > 0 && encoded[before-1] == '\\' {
			before--
		}
		if (at-before)%2 == 0 {
			return true
		}
		from = at + len(escape)
	}
}
