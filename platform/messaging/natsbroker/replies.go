package natsbroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// replies hands the answers to messages that were published one by one to the
// calls that wait for them. The client's own PublishMsgAsync makes a future
// with two channels for each message, keeps it in a map behind one lock, and
// decodes each answer as JSON of any form: half of what the relay spends on an
// event. Here an answer finds its place by two numbers in its subject, and in
// its usual form it is compared and not decoded.
type replies struct {
	nc     *nats.Conn
	stream string
	prefix string // of the subjects; behind it the number of the flight, ".", and that of the message
	usual  []byte // how an answer begins that says "stored"

	mu      sync.Mutex
	sub     *nats.Subscription // nil before the first flight
	last    uint64
	flights map[uint64]*flight
}

func newReplies(nc *nats.Conn, stream string) *replies {
	return &replies{nc: nc, stream: stream, prefix: nc.NewInbox() + ".",
		usual: []byte(`{"stream":"` + stream + `","seq":`), flights: map[uint64]*flight{}}
}

// begin opens a flight for so many messages.
func (r *replies) begin(b *Broker, messages int) (*flight, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sub == nil { // on the connection of the messages, so the server knows it before them
		sub, err := r.nc.Subscribe(r.prefix+">", r.deliver)
		if err != nil {
			return nil, sendOutcome(err)
		}
		r.sub = sub
	}
	r.last++
	f := &flight{b: b, number: r.last, prefix: r.prefix + strconv.FormatUint(r.last, 10) + ".", lost: b.connection(),
		changed: make(chan struct{}, 1), outcomes: make([]outcome, messages), under: make([]bool, messages)}
	r.flights[f.number] = f
	return f, nil
}

// end closes a flight: what arrives from now on is for nobody.
func (r *replies) end(f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flights, f.number)
}

func (r *replies) deliver(m *nats.Msg) {
	of, position, _ := strings.Cut(m.Subject[len(r.prefix):], ".")
	number, err := strconv.ParseUint(of, 10, 64)
	if err != nil {
		return
	}
	n, err := strconv.Atoi(position)
	if err != nil {
		return
	}
	r.mu.Lock()
	f := r.flights[number]
	r.mu.Unlock()
	if f != nil {
		f.answered(n, r.read(m))
	}
}

// read says what an answer means. Only an acknowledgement of the expected
// stream counts: anybody may reply to a request.
func (r *replies) read(m *nats.Msg) outcome {
	if number, found := bytes.CutPrefix(m.Data, r.usual); found {
		number, found = bytes.CutSuffix(number, []byte("}"))
		if sequence, err := strconv.ParseUint(string(number), 10, 64); found && err == nil && sequence > 0 {
			return outcome{sequence: sequence}
		}
	}
	return r.readAny(m)
}

// readAny reads an answer of any form: "the stream had it before", a refusal,
// nobody is there, or something that is no answer at all.
func (r *replies) readAny(m *nats.Msg) outcome {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return outcome{err: answerOutcome(nats.ErrNoResponders)}
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
		jetstream.PubAck
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil:
		return outcome{err: unknown(jetstream.ErrInvalidJSAck)}
	case answer.Error != nil:
		return outcome{err: answerOutcome(answer.Error)}
	case answer.Stream != r.stream || answer.Sequence == 0:
		return outcome{err: unknown(errors.New("the acknowledgement is not of this stream"))}
	}
	return outcome{sequence: answer.Sequence, duplicate: answer.Duplicate}
}
