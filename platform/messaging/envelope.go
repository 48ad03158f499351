package messaging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/strictjson"
)

// Limits of an event. They are checked when it is staged and when it is
// received, so that nothing enters that could not leave.
const (
	// MaxEventBytes bounds the encoded envelope. JetStream's own limit is
	// 1 MiB; a quarter of it leaves room for headers and keeps a batch of
	// 1000 within what a server will buffer.
	MaxEventBytes = 256 << 10

	// MaxIDBytes bounds aggregate ids and every other identifier: they
	// are indexed, and a B-tree row holds at most 2704 bytes.
	MaxIDBytes = 200

	// maxSchemaVersion is far above any, and below what an integer column holds.
	maxSchemaVersion = 1 << 20

	// Shards is the number of slices of an outbox that relays divide among
	// themselves. Changing it would move aggregates between shards while
	// their events are on the way, and so break their order.
	Shards = 64
)

// A Kind is a type of event in one version. Events are facts, so Type is in
// the past tense: OrderPaid, never PayOrder.
type Kind struct {
	Context   string // the service that owns the fact: "order"
	Type      string // "OrderPaid"
	Version   int    // of the schema of data; from 1
	Aggregate string // the type of the thing that changed: "order"
}

// A Payload is the data of an event. Kind must have a value receiver and must
// not depend on the value: it is called on the zero value.
type Payload interface{ Kind() Kind }

// String returns the name under which contracts/ holds the schema: OrderPaid.v1.
func (k Kind) String() string { return k.Type + ".v" + strconv.Itoa(k.Version) }

// Subject returns where an event of this kind and shard is published:
// shop.events.<context>.<Type>.v<version>.p<shard>.
func (k Kind) Subject(shard int) string {
	return "shop.events." + k.Context + "." + k.Type + ".v" + strconv.Itoa(k.Version) + ".p" + strconv.Itoa(shard/10) + strconv.Itoa(shard%10)
}

// Filter returns the subject pattern that matches every shard of this kind.
func (k Kind) Filter() string {
	return fmt.Sprintf("shop.events.%s.%s.v%d.*", k.Context, k.Type, k.Version)
}

// ShardOf returns the slice of the outbox that the aggregate's events go
// through: FNV-1a of its id. All events of one aggregate share a shard; that
// is what their order rests on.
func ShardOf(aggregateID string) int {
	h := fnv.New32a()
	h.Write([]byte(aggregateID))
	return int(h.Sum32() % Shards)
}

// A ShardSet is a set of an outbox's shards: shard s is bit s.
type ShardSet uint64

// AllShards is the set of every shard.
const AllShards ShardSet = 1<<Shards - 1

// With returns the set with one more shard.
func (s ShardSet) With(shard int) ShardSet { return s | 1<<shard }

// Meta is what an event says about itself, apart from its data. The field
// names are the contract.
type Meta struct {
	EventID          uuid.UUID `json:"event_id"`               // UUIDv7, made when the event was drafted; never changes
	EventType        string    `json:"event_type"`             // OrderPaid
	SchemaVersion    int       `json:"schema_version"`         // of data; a breaking change is a new version
	AggregateType    string    `json:"aggregate_type"`         // order
	AggregateID      string    `json:"aggregate_id"`           // ids are strings: JavaScript loses digits above 2^53
	AggregateVersion int64     `json:"aggregate_version"`      // 1 for the first event of the aggregate, then +1
	OccurredAt       time.Time `json:"occurred_at"`            // RFC 3339; when the fact became true
	ExpiresAt        time.Time `json:"expires_at,omitzero"`    // after this no consumer acts on it; it ends as "expired"
	Producer         string    `json:"producer"`               // the service that stated the fact
	Tenant           string    `json:"tenant"`                 // whose data it is: for whoever reads the stream; no consumer asks
	CorrelationID    string    `json:"correlation_id"`         // the same for everything that one request set off
	CausationID      string    `json:"causation_id,omitempty"` // the event that caused this one
	TraceParent      string    `json:"trace_parent,omitempty"` // W3C trace context of the creation
}

// Kind returns the kind that the event claims to be, without its context.
func (m Meta) name() string { return Kind{Type: m.EventType, Version: m.SchemaVersion}.String() }

// An Envelope is an event as it travels: what it says about itself, and data
// that only those who know its kind can read.
type Envelope struct {
	Meta
	Data json.RawMessage `json:"data"`
}

// An Event is an envelope whose data has been decoded for a handler.
type Event[T Payload] struct {
	Meta
	Data T

	result *string // where Result leaves its word for the inbox row
}

// Result sets what the inbox row of this event will say was done about it; it
// is kept as evidence. Without it, an event that was handled is "applied".
// Use short words such as "already_booked".
func (e Event[T]) Result(what string) {
	if e.result != nil {
		*e.result = what
	}
}

// decodeEnvelope reads an event as received. Every error it returns is
// permanent and carries a code: the same bytes will never become readable.
// Unknown fields are ignored, so that producers may add some; see [checkNames]
// for the ones that are not.
func decodeEnvelope(raw []byte) (Envelope, error) {
	env, err := parseEnvelope(raw)
	if err != nil {
		return env, Permanent(err)
	}
	return env, nil
}

func parseEnvelope(raw []byte) (Envelope, error) {
	if len(raw) == 0 {
		return Envelope{}, Coded("empty_message", errors.New("the message has no body"))
	}
	if len(raw) > MaxEventBytes {
		return Envelope{}, Coded("too_large", fmt.Errorf("%d bytes, at most %d", len(raw), MaxEventBytes))
	}
	if err := strictjson.Check(raw); err != nil {
		return Envelope{}, Coded("bad_text", err)
	}
	var wire struct {
		Envelope
		EventID string `json:"event_id"` // shadows the lenient uuid.UUID: one event, one spelling
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return Envelope{}, Coded("bad_json", withoutValues(err))
	}
	if err := checkNames(raw); err != nil {
		return Envelope{}, err // as if nothing could be read: which of the two would be recorded?
	}
	env := wire.Envelope
	id, err := uuid.Parse(wire.EventID)
	if err != nil || id.String() != wire.EventID {
		return env, Coded("bad_event_id", errors.New("event_id is not a UUID in its canonical lower-case form"))
	}
	env.EventID = id
	return env, env.check()
}

// envelopeFields are the names of an envelope's members.
var envelopeFields = []string{"event_id", "event_type", "schema_version", "aggregate_type", "aggregate_id", "aggregate_version", "occurred_at",
	"expires_at", "producer", "tenant", "correlation_id", "causation_id", "trace_parent", "data"}

// checkNames refuses a document that two readers could take for two events: one
// with a name twice, or with "EventId" or "Event_ID" in the place of event_id.
// encoding/json takes both for the field and lets the last one win; a producer's
// log, an auditor, or a consumer in another language goes by the first. What
// stands in data is its contract's business. raw is well-formed.
func checkNames(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token() // the bracket
	seen := map[string]bool{}
	for dec.More() {
		token, _ := dec.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return Coded("bad_json", withoutValues(err))
		}
		field := fieldOf(name)
		switch {
		case field != "" && field != name:
			return Coded("misspelt_field", fmt.Errorf("%s is written in other letters", field))
		case seen[name] && field != "":
			return Coded("duplicate_field", fmt.Errorf("%s stands twice", field))
		case seen[name]: // its name is made up, and may be personal
			return Coded("duplicate_field", errors.New("an unknown field stands twice"))
		}
		seen[name] = true
	}
	return nil
}

// fieldOf returns the field that a name stands for, to a reader that minds
// neither case nor underscores; or nothing. Case is folded as encoding/json does,
// which takes the long s (U+017F) for an s.
func fieldOf(name string) string {
	bare := strings.ReplaceAll(name, "_", "")
	for _, field := range envelopeFields {
		if strings.EqualFold(bare, strings.ReplaceAll(field, "_", "")) {
			return field
		}
	}
	return ""
}

// withoutValues says what is wrong with a document and nothing of what it
// holds: the errors of the decoders quote it, and it is personal.
func withoutValues(err error) error {
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	var noTime *time.ParseError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not well-formed JSON, at byte %d", syntax.Offset)
	case errors.As(err, &wrongType):
		return fmt.Errorf("field %q has the wrong type or does not fit", wrongType.Field)
	case errors.As(err, &noTime):
		return errors.New("a time is not in the form of RFC 3339")
	default:
		return errors.New("a field refuses its value")
	}
}

// check refuses what no consumer could work with.
func (e *Envelope) check() error {
	switch {
	case e.EventID == uuid.Nil:
		return Coded("bad_event_id", errors.New("event_id is missing"))
	case !identifier(e.EventType):
		return Coded("bad_event_type", errors.New("event_type is missing or not an identifier"))
	case e.SchemaVersion < 1 || e.SchemaVersion > maxSchemaVersion:
		return Coded("bad_schema_version", fmt.Errorf("schema_version is missing or not within 1 and %d", maxSchemaVersion))
	case e.AggregateID == "" || len(e.AggregateID) > MaxIDBytes:
		return Coded("bad_aggregate_id", fmt.Errorf("aggregate_id must have 1 to %d bytes", MaxIDBytes))
	case len(e.AggregateType) > MaxIDBytes || len(e.Producer) > MaxIDBytes || len(e.Tenant) > MaxIDBytes ||
		len(e.CorrelationID) > MaxIDBytes || len(e.CausationID) > MaxIDBytes:
		return Coded("bad_envelope", fmt.Errorf("an identifier has more than %d bytes", MaxIDBytes))
	case e.AggregateVersion < 1:
		return Coded("bad_aggregate_version", errors.New("aggregate_version is missing or below 1"))
	case !strictjson.Storable(e.OccurredAt):
		return Coded("bad_occurred_at", errors.New("occurred_at is missing or not within the years 1970 and 9999"))
	case !e.ExpiresAt.IsZero() && !strictjson.Storable(e.ExpiresAt):
		return Coded("bad_expires_at", errors.New("expires_at is not within the years 1970 and 9999"))
	case len(e.Data) == 0 || e.Data[0] != '{':
		return Coded("bad_data", errors.New("data is missing or not an object"))
	}
	return nil
}

// identifier reports whether s can be a token of a subject and a label of a
// metric: a letter, then letters, digits and underscores, 64 at most.
func identifier(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		case i > 0 && (c == '_' || '0' <= c && c <= '9'):
		default:
			return false
		}
	}
	return true
}

// validTraceParent keeps rubbish, and line breaks above all, out of headers.
// https://www.w3.org/TR/trace-context/#traceparent-header
func validTraceParent(s string) bool {
	return len(s) == 55 && s[:3] == "00-" && s[35] == '-' && s[52] == '-' &&
		lowerHex(s[3:35]) && lowerHex(s[36:52]) && lowerHex(s[53:]) &&
		s[3:35] != "00000000000000000000000000000000" && s[36:52] != "0000000000000000"
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
