package opsapi

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
)

// A Page is a part of a list. Next is the parameter of the next one; it is
// empty on the last.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// newPage cuts a list that was read with one entry more than asked for: the
// surplus tells that there is a next page.
func newPage[T any](items []T, limit int, cursor func(T) string) Page[T] {
	if items == nil {
		items = []T{}
	}
	if len(items) <= limit {
		return Page[T]{Items: items}
	}
	return Page[T]{Items: items[:limit], Next: cursor(items[limit-1])}
}

// ServiceInfo says who answers.
type ServiceInfo struct {
	Service   string         `json:"service"`
	Consumers []ConsumerInfo `json:"consumers"`
	Now       time.Time      `json:"now"`        // by the database's clock
	KeptSince time.Time      `json:"kept_since"` // of what is older, messages may have been put away
}

// ConsumerInfo is one consumer of a service.
type ConsumerInfo struct {
	Name    string   `json:"name"`
	Kinds   []string `json:"kinds"`
	Owner   string   `json:"owner"`
	Runbook string   `json:"runbook"`
}

// Backlog is [messaging.Backlog] with its durations in seconds.
type Backlog struct {
	Pending              int               `json:"pending"`
	OldestPendingSeconds float64           `json:"oldest_pending_seconds"`
	HottestShard         int               `json:"hottest_shard"`
	HottestCount         int               `json:"hottest_count"`
	HeldFailed           int               `json:"held_failed"`
	HeldWaiting          int               `json:"held_waiting"`
	Relays               int               `json:"relays"`
	Consumers            []ConsumerBacklog `json:"consumers"`
}

// ConsumerBacklog is the unfinished part of one consumer.
type ConsumerBacklog struct {
	Consumer             string  `json:"consumer"`
	Active               string  `json:"active"`
	Retrying             int     `json:"retrying"`
	Parked               int     `json:"parked"`
	DeadLetters          int     `json:"dead_letters"`
	Overdue              int     `json:"overdue"`
	Gaps                 int     `json:"gaps"`
	OldestFailureSeconds float64 `json:"oldest_failure_seconds"`
}

func newBacklog(b messaging.Backlog) Backlog {
	v := Backlog{b.Pending, b.OldestPending.Seconds(), b.HottestShard, b.HottestCount, b.HeldFailed, b.HeldWaiting, b.Relays, []ConsumerBacklog{}}
	for _, c := range b.Consumers {
		v.Consumers = append(v.Consumers, ConsumerBacklog{c.Consumer, c.Active, c.Retrying, c.Parked, c.DeadLetters, c.Overdue, c.Gaps, c.OldestFailure.Seconds()})
	}
	return v
}

// Between is what an owner has between two versions of an aggregate. The events
// are envelopes, byte for byte as staged.
type Between struct {
	Events   [][]byte `json:"events"` // in base64: a string of JSON would not keep the bytes
	Complete bool     `json:"complete"`
}

// Payloads are envelopes, byte for byte as staged, oldest first.
type Payloads struct {
	Events [][]byte `json:"events"`
}

// EventIDs names events, and says why, where something is to be done to them.
type EventIDs struct {
	EventIDs []uuid.UUID `json:"event_ids"`
	Reason   string      `json:"reason,omitempty"`
}

// Reason is the body of an action that needs nothing else.
type Reason struct {
	Reason string `json:"reason,omitempty"`
}

// EventRefs names events by what they are about.
type EventRefs struct {
	Events []EventRef `json:"events"`
}

// Changed is how many rows an action has changed. More says that others match
// that were beyond the limit of one call: call again.
type Changed struct {
	Changed int  `json:"changed"`
	More    bool `json:"more,omitempty"`
}

// OutboxLookup asks which events are staged, by id or by version.
type OutboxLookup struct {
	EventIDs []uuid.UUID `json:"event_ids,omitempty"`
	Versions []EventRef  `json:"versions,omitempty"`
}

// OutboxFound are those that are.
type OutboxFound struct {
	EventIDs []uuid.UUID `json:"event_ids"`
	Versions []EventRef  `json:"versions"`
}

// InboxFound is what consumers did with events: what they applied, and what
// they could not.
type InboxFound struct {
	Seen     []messaging.SeenEvent  `json:"seen"`
	Failures []messaging.DeadLetter `json:"failures"`
}

// FailureSelection says which dead letters to act on. A state is implied: an
// action only changes what it can.
type FailureSelection struct {
	IDs           []string  `json:"ids,omitempty"`
	Consumer      string    `json:"consumer,omitempty"`
	Code          string    `json:"code,omitempty"`
	AggregateType string    `json:"aggregate_type,omitempty"`
	AggregateID   string    `json:"aggregate_id,omitempty"`
	EventID       uuid.UUID `json:"event_id,omitzero"`
	Limit         int       `json:"limit,omitempty"` // defaults to 1000, which is also the most
	Reason        string    `json:"reason,omitempty"`
}

// A FailureDetail is one dead letter with its history. Masked shows how its
// payload is made without any of its values.
type FailureDetail struct {
	messaging.FailureDetail
	Masked json.RawMessage `json:"payload_masked,omitempty"`
	Bytes  int             `json:"payload_bytes"`
}

// FailurePayload is a payload in the clear. Event is set if it is JSON, Raw if
// it is anything else.
type FailurePayload struct {
	Event json.RawMessage `json:"event,omitempty"`
	Raw   []byte          `json:"raw,omitempty"`
}

// Fix is a corrected event and why it is right.
type Fix struct {
	Event  json.RawMessage `json:"event"`
	Reason string          `json:"reason,omitempty"`
}

// Fixed names the event that was made of a correction.
type Fixed struct {
	EventID uuid.UUID `json:"event_id"`
}

// A ReplayRequest says which events to bring to which consumer again.
type ReplayRequest struct {
	Consumer      string    `json:"consumer"`
	From          Selection `json:"from"`
	AllowExternal bool      `json:"allow_external,omitempty"`
	PerSecond     int       `json:"per_second,omitempty"` // defaults to 100
	Reason        string    `json:"reason,omitempty"`
}

// A Selection chooses the events of a replay. Which fields count depends on the
// source; those of another one must be absent.
type Selection struct {
	Source string `json:"source"` // failures, outbox or stream

	// failures: unresolved dead letters of the consumer.
	FailureIDs []string `json:"failure_ids,omitempty"`
	Code       string   `json:"code,omitempty"`

	// outbox: what the owners of the consumer's kinds have staged.
	EventIDs    []uuid.UUID `json:"event_ids,omitempty"`
	AggregateID string      `json:"aggregate_id,omitempty"` // an order's id, for an order's events

	// stream: positions, both inclusive.
	FromSequence uint64 `json:"from_sequence,omitempty,string"`
	ToSequence   uint64 `json:"to_sequence,omitempty,string"`

	// outbox and stream: one of the consumer's kinds, and a span of time.
	Kind  string    `json:"kind,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// A ReplayPlan is [messaging.ReplayPlan] with its age in seconds.
type ReplayPlan struct {
	ReplayID         uuid.UUID      `json:"replay_id,omitzero"` // once it is made
	Consumer         string         `json:"consumer"`
	Items            int            `json:"items"`
	Expected         map[string]int `json:"expected"`
	External         int            `json:"external"`
	NeedsApproval    bool           `json:"needs_approval"`
	OldestAgeSeconds float64        `json:"oldest_age_seconds"`
}

func newReplayPlan(id uuid.UUID, p messaging.ReplayPlan) ReplayPlan {
	return ReplayPlan{id, p.Consumer, p.Items, p.Expected, p.External, p.NeedsApproval, p.OldestEventAge.Seconds()}
}

// An EventRef names an event by what it is about. Key is the business key that
// effects in several services share, such as the order's id; it may be empty.
type EventRef struct {
	EventID          uuid.UUID `json:"event_id,omitzero"`
	Kind             string    `json:"kind,omitempty"`
	AggregateID      string    `json:"aggregate_id"`
	AggregateVersion int64     `json:"aggregate_version,string"`
	Key              string    `json:"key,omitempty"`
}

// A Fact is a change in a service's business tables. It must have an event.
type Fact struct {
	Kind             string    `json:"kind"` // of the event that it must have: OrderPaid.v1
	AggregateID      string    `json:"aggregate_id"`
	AggregateVersion int64     `json:"aggregate_version,string"`
	Key              string    `json:"key"`
	At               time.Time `json:"at"`
	Cursor           string    `json:"-"`
}

// The states of a fact's event.
const (
	FactUnstaged  = "unstaged"  // there is none
	FactOrphan    = "orphan"    // it is neither published nor on its way
	FactQueued    = "queued"    // a relay will take it
	FactHeld      = "held"      // it waits behind another one, or until it may be tried again
	FactFailed    = "failed"    // the broker refused it: a person must act
	FactPublished = "published" // the broker has acknowledged it
)

// A StagedFact is a fact with what became of its event.
type StagedFact struct {
	Fact
	State       string    `json:"state"`
	EventID     uuid.UUID `json:"event_id,omitzero"`
	Subject     string    `json:"subject,omitempty"`
	Stream      string    `json:"stream,omitempty"`
	StreamSeq   uint64    `json:"stream_seq,omitempty,string"`
	PublishedAt time.Time `json:"published_at,omitzero"`
}

// Ref names the fact's event.
func (f StagedFact) Ref() EventRef {
	return EventRef{f.EventID, f.Kind, f.AggregateID, f.AggregateVersion, f.Key}
}

// An Effect is a row that a service made, or changed, because of an event.
type Effect struct {
	What    string    `json:"what"` // "points_entry", "mail", "document"
	ID      string    `json:"id"`
	Key     string    `json:"key"`               // the business key it belongs to
	EventID uuid.UUID `json:"event_id,omitzero"` // what it was made for; zero if the row does not say
	State   string    `json:"state,omitempty"`
	Version int64     `json:"version,string"` // of the aggregate, where the row follows it; else 0
	At      time.Time `json:"at"`

	// Says are details that are worth showing and hold nothing personal.
	Says map[string]string `json:"says,omitempty"`

	// Corrects is the dead letter of whose correction this is the effect: no
	// outbox holds such an event.
	Corrects string `json:"corrects,omitempty"`

	Cursor string `json:"-"`
}

// An Invariant is something that must hold at any moment.
type Invariant struct {
	Name      string   `json:"name"`
	Holds     bool     `json:"holds"`
	Known     bool     `json:"known,omitempty"`     // it does not hold because something is on a person's desk already
	Says      string   `json:"says"`                // what is wrong, or what was checked
	Count     int      `json:"count"`               // how many offend
	Offenders []string `json:"offenders,omitempty"` // some of them
}

// OwnEvidence is what a service's own tables say about a key.
type OwnEvidence struct {
	Keys       []string // the business keys that it leads to, the newest first, at most 10
	Aggregates []string // ids of aggregates of this service that belong to them
	Effects    []Effect // rows that show how far things are
}

// Evidence is everything that one database knows about a key.
type Evidence struct {
	Service   string                  `json:"service"`
	Now       time.Time               `json:"now"`
	Keys      []string                `json:"keys"`
	Staged    []messaging.StagedEvent `json:"staged"`
	Seen      []messaging.SeenEvent   `json:"seen"`
	Failures  []messaging.DeadLetter  `json:"failures"`
	Effects   []Effect                `json:"effects"`
	Actions   []messaging.Action      `json:"actions"`
	Replays   []ReplayedEvent         `json:"replays"`
	Consumers []ConsumerInfo          `json:"consumers"`
}

// A ReplayedEvent is an event that a replay brings again.
type ReplayedEvent struct {
	ReplayID uuid.UUID  `json:"replay_id"`
	Consumer string     `json:"consumer"`
	EventID  uuid.UUID  `json:"event_id"`
	State    string     `json:"state"` // of the replay
	Expected string     `json:"expected"`
	Result   *string    `json:"result"`
	DoneAt   *time.Time `json:"done_at"`
}

// parseID reads an id that is a number in the database and a string here.
func parseID(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no id", s)
	}
	return n, nil
}

func formatID(n int64) string { return strconv.FormatInt(n, 10) }
