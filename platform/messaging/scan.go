package messaging

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"orderpaid/platform/strictjson"
)

// maxOthers is how many fields that it does not know scanEnvelope compares with
// each other: more than anybody adds, and too few to be kept busy with.
const maxOthers = 16

// scanEnvelope reads an envelope as [encode] writes it, in one pass and without
// reflection: a tenth of what [parseEnvelope] takes, and that was the largest
// share of a consumer's processor time.
//
// false says nothing about the event, only that it is written in another way,
// or wrongly: an escape in an identifier, a name in other letters, a field
// twice. parseEnvelope decides then. What is accepted here, parseEnvelope
// accepts with the same result, on one condition: the inside of data is not
// looked at, and the caller must be about to decode it. Data is a part of raw.
func scanEnvelope(raw []byte) (Envelope, bool) {
	if len(raw) == 0 || len(raw) > MaxEventBytes || strictjson.Check(raw) != nil {
		return Envelope{}, false
	}
	s := scanner{raw: raw}
	if !s.take('{') {
		return Envelope{}, false
	}
	var env Envelope
	seen := 0           // a bit for each field that is known
	var others [][]byte // the names of those that are not
	for {
		name, ok := s.text()
		if !ok || !s.take(':') {
			return Envelope{}, false
		}
		value, ok := s.value()
		if !ok {
			return Envelope{}, false
		}
		field, ok := env.setField(string(name), value)
		if !ok || seen&field != 0 {
			return Envelope{}, false
		}
		seen |= field
		if field == 0 {
			if len(others) == maxOthers || slices.ContainsFunc(others, func(o []byte) bool { return bytes.Equal(o, name) }) {
				return Envelope{}, false
			}
			others = append(others, name)
		}
		if !s.take(',') {
			return env, s.take('}') && s.peek() == 0 && s.at == len(raw) && env.check() == nil
		}
	}
}

// setField sets the field of this name from its JSON, and returns a bit that
// stands for it. A name that is no field's has none.
func (e *Envelope) setField(name string, value []byte) (bit int, ok bool) {
	switch name {
	case "event_id":
		e.EventID, ok = canonicalUUID(value)
		return 1, ok
	case "event_type":
		return 1 << 1, setText(&e.EventType, value)
	case "schema_version":
		version, ok := plainNumber(value)
		e.SchemaVersion = int(version)
		return 1 << 2, ok
	case "aggregate_type":
		return 1 << 3, setText(&e.AggregateType, value)
	case "aggregate_id":
		return 1 << 4, setText(&e.AggregateID, value)
	case "aggregate_version":
		e.AggregateVersion, ok = plainNumber(value)
		return 1 << 5, ok
	case "occurred_at":
		return 1 << 6, value[0] == '"' && e.OccurredAt.UnmarshalJSON(value) == nil
	case "expires_at":
		return 1 << 7, value[0] == '"' && e.ExpiresAt.UnmarshalJSON(value) == nil
	case "producer":
		return 1 << 8, setText(&e.Producer, value)
	case "tenant":
		return 1 << 9, setText(&e.Tenant, value)
	case "correlation_id":
		return 1 << 10, setText(&e.CorrelationID, value)
	case "causation_id":
		return 1 << 11, setText(&e.CausationID, value)
	case "trace_parent":
		return 1 << 12, setText(&e.TraceParent, value)
	case "data":
		e.Data = value
		return 1 << 13, value[0] == '{'
	default:
		return 0, plainName(name) && fieldOf(name) == "" && json.Valid(value)
	}
}

// setText takes a string without escapes.
func setText(to *string, value []byte) bool {
	s := scanner{raw: value}
	text, ok := s.text()
	*to = string(text)
	return ok && s.at == len(value)
}

// plainNumber takes a whole number that fits for certain.
func plainNumber(value []byte) (int64, bool) {
	if len(value) > 18 || value[0] < '1' || value[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil
}

// canonicalUUID takes the one spelling that an event id may have.
func canonicalUUID(value []byte) (uuid.UUID, bool) {
	if len(value) != 38 || value[0] != '"' || value[37] != '"' {
		return uuid.Nil, false
	}
	text := value[1:37]
	for _, c := range text {
		if c >= 'A' && c <= 'F' {
			return uuid.Nil, false
		}
	}
	id, err := uuid.ParseBytes(text)
	return id, err == nil
}

func plainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// A scanner cuts one JSON object into its members.
type scanner struct {
	raw []byte
	at  int
}

// peek returns the next byte that is not space, or 0.
func (s *scanner) peek() byte {
	for ; s.at < len(s.raw); s.at++ {
		switch c := s.raw[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take moves behind the next byte that is not space, if it is c.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// text takes a string without escapes and returns what is between its quotes.
func (s *scanner) text() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	for from := s.at; s.at < len(s.raw); s.at++ {
		switch c := s.raw[s.at]; {
		case c == '"':
			s.at++
			return s.raw[from : s.at-1], true
		case c == '\\' || c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// value takes the next value and returns its bytes. Of what is inside of an
// object or an array it only counts the brackets.
func (s *scanner) value() ([]byte, bool) {
	s.peek()
	from, depth := s.at, 0
	for ; s.at < len(s.raw); s.at++ {
		switch c := s.raw[s.at]; c {
		case '"':
			if !s.skipString() {
				return nil, false
			}
			if depth == 0 {
				return s.raw[from:s.at], true
			}
			s.at-- // the loop steps on
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.at++
				return s.raw[from:s.at], true
			}
			if depth < 0 { // behind a number, true, false or null
				return s.raw[from:s.at], s.at > from
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return s.raw[from:s.at], s.at > from
			}
		}
	}
	return nil, false
}

// skipString moves behind the string that begins here.
func (s *scanner) skipString() bool {
	for s.at++; s.at < len(s.raw); s.at++ {
		switch s.raw[s.at] {
		case '"':
			s.at++
			return true
		case '\\':
			s.at++
		}
	}
	return false
}
