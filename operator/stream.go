package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
)

// streamView compares what the outboxes say the broker has with what it has.
//
// An acknowledgement names a stream and a sequence. A broker that lost its disk
// and was rolled back, or whose stream was deleted and made anew, gives the
// same sequences to other events; so what counts is which event is there, and
// not that something is.
type streamView struct {
	broker *natsbroker.Broker
	maxAge time.Duration // after which what was published may have left the stream; 0 if nothing does
}

func newStreamView(ctx context.Context, broker *natsbroker.Broker) (*streamView, error) {
	status, err := broker.Status(ctx)
	if err != nil {
		return nil, err
	}
	return &streamView{broker: broker, maxAge: status.MaxAge}, nil
}

// ageMargin is for the clocks: what leaves the stream within this is not
// looked for.
const ageMargin = 5 * time.Minute

func (v *streamView) aged(publishedAt, now time.Time) bool {
	return v.maxAge > 0 && now.Sub(publishedAt) > v.maxAge-ageMargin
}

// maxGap is how far apart two sequences may be that are read in one go. Beyond
// that, the messages between them would be read for nothing.
const maxGap = 5000

// missing returns the events that the stream does not hold where it should, nor
// anywhere near.
func (v *streamView) missing(ctx context.Context, expected []opsapi.StagedFact) ([]opsapi.StagedFact, error) {
	facts := slices.Clone(expected)
	slices.SortFunc(facts, func(a, b opsapi.StagedFact) int { return cmp.Compare(a.StreamSeq, b.StreamSeq) })
	kinds, err := kindsOf(facts)
	if err != nil {
		return nil, err
	}
	present := make(map[uuid.UUID]bool, len(facts))
	for start := 0; start < len(facts); {
		end := start + 1
		for end < len(facts) && facts[end].StreamSeq-facts[end-1].StreamSeq <= maxGap {
			end++
		}
		if err := v.read(ctx, kinds, facts[start].StreamSeq, facts[end-1].StreamSeq, present); err != nil {
			return nil, err
		}
		start = end
	}
	return slices.DeleteFunc(facts, func(f opsapi.StagedFact) bool { return present[f.EventID] }), nil
}

// read notes the events from one sequence to another.
func (v *streamView) read(ctx context.Context, kinds []messaging.Kind, from, to uint64, present map[uuid.UUID]bool) error {
	reader := v.broker.Reader(kinds, from)
	for {
		batch, err := reader.Next(ctx, int(min(pageSize, to-from+1)))
		if err != nil {
			return err
		}
		for _, m := range batch {
			if m.Sequence() > to {
				return nil
			}
			var event struct {
				ID uuid.UUID `json:"event_id"`
			}
			if json.Unmarshal(m.Data(), &event) == nil {
				present[event.ID] = true
			}
		}
		if len(batch) == 0 || batch[len(batch)-1].Sequence() == to {
			return nil
		}
	}
}

// kindsOf reads the kinds of events from their subjects,
// shop.events.<context>.<Type>.v<version>.p<shard>.
func kindsOf(facts []opsapi.StagedFact) ([]messaging.Kind, error) {
	var kinds []messaging.Kind
	for _, f := range facts {
		parts := strings.Split(f.Subject, ".")
		if len(parts) != 6 {
			return nil, fmt.Errorf("event %s has the subject %q, which is none of an event", f.EventID, f.Subject)
		}
		version, err := strconv.Atoi(strings.TrimPrefix(parts[4], "v"))
		if err != nil {
			return nil, fmt.Errorf("event %s has the subject %q, which is none of an event", f.EventID, f.Subject)
		}
		kind := messaging.Kind{Context: parts[2], Type: parts[3], Version: version}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}
