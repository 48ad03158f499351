package messaging

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// What can happen to a message that was handed to a [Publisher]. A receipt's
// error is nil or matches exactly one of these with errors.Is; the relay
// decides by them and never by the text of an error.
var (
	// ErrUnavailable: the broker cannot take messages now, whatever they are.
	// Nothing is wrong with the message, so no attempt is counted against it.
	ErrUnavailable = errors.New("broker unavailable")

	// ErrUnknownOutcome: the message was sent and no answer came. The broker
	// may hold it. The only right answer is to send it again under the same ID.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrRefused: the broker answered that it will never take this message as
	// it is: too large, a subject that no stream holds.
	ErrRefused = errors.New("message refused")

	// ErrBehind: the message was not sent, because an earlier message of the
	// same key in the same call was not acknowledged.
	ErrBehind = errors.New("not sent: an earlier message of its key was not acknowledged")
)

// A Message is one event on its way to the broker.
type Message struct {
	ID          uuid.UUID // the event's id: the same in every attempt and every replay
	Key         string    // the aggregate: messages of one key keep their order
	Subject     string    // see [Kind.Subject]
	Data        []byte    // the envelope, byte for byte as staged
	TraceParent string    // W3C trace context of the event's creation, or empty
}

// Check refuses what no broker could store or deliver, before it is sent: an
// adapter calls it for every message. The error matches [ErrRefused].
func (m *Message) Check() error {
	switch {
	case m.ID == uuid.Nil:
		return fmt.Errorf("%w: it has no id", ErrRefused)
	case m.Key == "":
		return fmt.Errorf("%w: it has no key", ErrRefused)
	case !eventSubject(m.Subject): // blanks, wildcards, empty tokens, another subject space
		return fmt.Errorf("%w: subject %q is not one of an event", ErrRefused, m.Subject)
	case len(m.Data) > MaxEventBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrRefused, len(m.Data), MaxEventBytes)
	}
	return nil
}

// eventSubject reports whether s is shop.events. and then tokens of letters,
// digits, underscores and dashes.
func eventSubject(s string) bool {
	tokens, ok := strings.CutPrefix(s, "shop.events.")
	if !ok {
		return false
	}
	before := byte('.')
	for i := range len(tokens) {
		c := tokens[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-':
		case c == '.' && before != '.':
		default:
			return false
		}
		before = c
	}
	return before != '.'
}

// Traced reports whether TraceParent may travel as a header. Rubbish may not:
// the event is worth more than its trace, so it goes without.
func (m *Message) Traced() bool { return validTraceParent(m.TraceParent) }

// A Receipt is the broker's answer about one message.
type Receipt struct {
	Stream    string // the stream that holds the message
	Sequence  uint64 // its position there
	Duplicate bool   // the broker held it already and kept the first copy
	Err       error  // nil only if the broker has stored the message
}

// A Publisher stores messages in the broker.
type Publisher interface {
	// Publish stores the messages in the order given and returns one receipt
	// for each, at the same index.
	//
	// It blocks until every message is acknowledged or given up, at the latest
	// until ctx is done; what was sent and not answered by then is
	// ErrUnknownOutcome. After a message whose receipt carries an error, no
	// later message of the same key is sent (ErrBehind); other keys go on.
	// It must not retry on its own behalf beyond one repetition under the same
	// IDs: pacing is the relay's. Safe for concurrent use.
	Publish(ctx context.Context, messages []Message) []Receipt
}

// A Subscription names what a consumer reads: one durable position in the
// stream and the kinds it wants. Services export theirs; whoever owns the
// topology creates them; services only bind.
type Subscription struct {
	Durable string // for example "points-awarder"; it is the identity of the consumer's inbox
	Kinds   []Kind // what is delivered; everything else is filtered, by the broker unless Wide is set
	Wide    bool   // the broker may send what lies between the kinds as well; see [Consumer.Wide]
}

// A Subscriber gives access to durable subscriptions that already exist.
type Subscriber interface {
	// Subscribe binds to the durable. It fails when the durable does not exist
	// or does not deliver exactly the subscription's kinds; it never creates
	// or changes one.
	Subscribe(ctx context.Context, s Subscription) (Source, error)
}

// A Source delivers messages of one bound subscription. Only one goroutine may
// call Fetch.
type Source interface {
	// Fetch waits until at least one message is there and returns up to max
	// of them, in stream order. It returns ctx's error when ctx is done,
	// without losing messages: what it had taken is redelivered or returned by
	// the next call. Any other error is temporary, unless it matches
	// ErrSubscriptionGone.
	Fetch(ctx context.Context, max int) ([]Delivery, error)

	// Close stops the delivery. Messages that were fetched and not answered
	// come again, to whoever binds next.
	Close()
}

// ErrSubscriptionGone: the durable was deleted. Nothing recreates it silently:
// a new one would start at another position.
var ErrSubscriptionGone = errors.New("the durable subscription does not exist")

// A Delivery is one message as the broker delivered it. Exactly one of Ack and
// Retry may be called, once; a delivery that is not answered comes again after
// the broker's acknowledgement wait.
type Delivery interface {
	Data() []byte         // as received; callers must not change it
	Subject() string      // where it was published
	Header(string) string // exact, case-sensitive name; empty if absent
	Headers() map[string][]string
	Stream() string
	Sequence() uint64    // position in the stream
	Attempt() int        // 1 on the first delivery; brokers may forget, so it is a hint
	StoredAt() time.Time // the broker's clock

	// Ack tells the broker that the message is done with. It does not wait
	// for an answer: a lost acknowledgement means a redelivery, which the
	// inbox absorbs.
	Ack() error

	// Retry asks for the message again after at least d.
	Retry(d time.Duration) error

	// InProgress restarts the broker's acknowledgement wait.
	InProgress() error
}
