package opsapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
)

// maxReplay bounds one replay: its events are held in memory while it is
// planned. For more, replay one span of time after the other.
const maxReplay = 20_000

var errReplayTooLarge = &httpserver.Error{Status: http.StatusUnprocessableEntity, Code: "replay_too_large",
	Detail: fmt.Sprintf("a replay has at most %d events: choose a smaller span", maxReplay)}

func badSelection(format string, args ...any) error {
	return &httpserver.Error{Status: http.StatusUnprocessableEntity, Code: "bad_selection", Detail: fmt.Sprintf(format, args...)}
}

// The ways in which each source is asked, for whoever asks in another.
const (
	byFailure  = "failures are chosen by failure_ids, code or aggregate_id"
	byOutbox   = "events of an outbox are chosen by event_ids, or by aggregate_id or since (and until, kind)"
	bySequence = "messages of the stream are chosen by from_sequence or since (and to_sequence, until, kind)"
)

// check refuses fields that would not count. What narrows a choice and is left
// out brings more events than were meant, and nobody can take them back.
func (s Selection) check() error {
	span := s.Kind != "" || !s.Since.IsZero() || !s.Until.IsZero()
	sequence := s.FromSequence > 0 || s.ToSequence > 0
	failure := len(s.FailureIDs) > 0 || s.Code != ""
	events := len(s.EventIDs) > 0
	switch {
	case s.Source == "failures" && (span || sequence || events):
		return badSelection(byFailure)
	case s.Source == "outbox" && (sequence || failure || events && (span || s.AggregateID != "")):
		return badSelection(byOutbox)
	case s.Source == "stream" && (failure || events || s.AggregateID != ""):
		return badSelection(bySequence)
	}
	return nil
}

// choose returns the events that a selection names, each aggregate's in order.
func (a *API) choose(ctx context.Context, c *messaging.Consumer, s Selection) ([][]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	kinds := c.Subscription().Kinds
	if s.Kind != "" {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k messaging.Kind) bool { return k.String() != s.Kind })
		if len(kinds) == 0 {
			return nil, badSelection("the consumer does not handle this kind; GET /ops/service lists what it does")
		}
	}
	switch s.Source {
	case "failures":
		return a.fromFailures(ctx, c.Subscription().Durable, s)
	case "outbox":
		return a.fromOutbox(ctx, kinds, s)
	case "stream":
		return a.fromStream(ctx, c.Subscription().Durable, kinds, s)
	default:
		return nil, badSelection("source is failures, outbox or stream")
	}
}

func (a *API) fromFailures(ctx context.Context, consumer string, s Selection) ([][]byte, error) {
	filter := messaging.FailureFilter{Consumer: consumer, State: "unresolved", Code: s.Code, AggregateID: s.AggregateID, Limit: maxReplay + 1}
	var err error
	if len(s.FailureIDs) > 0 {
		if filter.IDs, err = parseIDs(s.FailureIDs); err != nil {
			return nil, err
		}
	}
	return limited(a.desk.Payloads(ctx, filter))
}

func limited(events [][]byte, err error) ([][]byte, error) {
	if err == nil && len(events) > maxReplay {
		return nil, errReplayTooLarge
	}
	return events, err
}

// fromOutbox asks the owners of the kinds. A kind's context is the name of the
// service that owns it.
func (a *API) fromOutbox(ctx context.Context, kinds []messaging.Kind, s Selection) ([][]byte, error) {
	if len(s.EventIDs) == 0 && s.AggregateID == "" && s.Since.IsZero() {
		return nil, badSelection(byOutbox)
	}
	var all [][]byte
	for _, owner := range owners(kinds) {
		peer, known := a.peers[owner]
		if !known {
			return nil, &httpserver.Error{Status: http.StatusUnprocessableEntity, Code: "owner_unknown",
				Detail: "this service does not know the ops API of " + owner + " (--ops-peer)"}
		}
		ids, err := chooseIDs(ctx, peer, kindsOf(kinds, owner), s)
		if err != nil {
			return nil, unreachable(err)
		}
		for chunk := range slices.Chunk(ids, maxPage) { // each answer is in order, and so are the chunks
			events, err := peer.Payloads(ctx, chunk)
			if err != nil {
				return nil, unreachable(err)
			}
			all = append(all, events...)
		}
	}
	return limited(all, nil)
}

// CodeOwnerSilent is the code of a replay that is refused because the owner of its
// events, another service, does not answer.
const CodeOwnerSilent = "owner_does_not_answer"

// unreachable makes an answer of what a peer did: that is not this service's
// fault, and whoever asked must learn whose it is.
func unreachable(err error) error {
	if isCode(err, errReplayTooLarge.Code) {
		return err
	}
	return &httpserver.Error{Status: http.StatusBadGateway, Code: CodeOwnerSilent, Detail: err.Error()}
}

func owners(kinds []messaging.Kind) (names []string) {
	for _, k := range kinds {
		if !slices.Contains(names, k.Context) {
			names = append(names, k.Context)
		}
	}
	return names
}

func kindsOf(kinds []messaging.Kind, owner string) (names []string) {
	for _, k := range kinds {
		if k.Context == owner {
			names = append(names, k.String())
		}
	}
	return names
}

// chooseIDs returns the ids of what an owner has of the selection, in the order
// in which it was staged.
func chooseIDs(ctx context.Context, owner *Client, kinds []string, s Selection) ([]uuid.UUID, error) {
	if len(s.EventIDs) > 0 {
		return s.EventIDs, bounded(len(s.EventIDs))
	}
	var staged []messaging.StagedEvent
	for _, kind := range kinds {
		filter := OutboxFilter{AggregateID: s.AggregateID, Kind: kind, Since: s.Since, Until: s.Until, Limit: maxPage}
		for {
			page, err := owner.Outbox(ctx, filter)
			if err != nil {
				return nil, err
			}
			staged = append(staged, page.Items...)
			if len(staged) > 2*maxReplay {
				return nil, errReplayTooLarge
			}
			if page.Next == "" {
				break
			}
			filter.Before = page.Next
		}
		if s.AggregateID != "" { // one answer holds all kinds
			break
		}
	}
	slices.SortFunc(staged, func(a, b messaging.StagedEvent) int { return cmp.Compare(a.ID, b.ID) })
	var ids []uuid.UUID
	for _, e := range staged {
		inTime := !e.CreatedAt.Before(s.Since) && (s.Until.IsZero() || e.CreatedAt.Before(s.Until))
		if slices.Contains(kinds, e.Kind) && inTime {
			ids = append(ids, e.EventID)
		}
	}
	return ids, nil
}

func (a *API) fromStream(ctx context.Context, durable string, kinds []messaging.Kind, s Selection) ([][]byte, error) {
	switch {
	case a.cfg.Broker == nil:
		return nil, badSelection("this service cannot read the stream")
	case s.FromSequence == 0 && s.Since.IsZero():
		return nil, badSelection(bySequence)
	}
	span := natsbroker.Span{From: s.FromSequence, To: s.ToSequence, Since: s.Since, Until: s.Until, Limit: maxReplay}
	if span.Until.IsZero() {
		span.Until = time.Now() // what is published while this reads must not make it endless
	}
	stored, err := a.cfg.Broker.Replay(ctx, durable, kinds, span)
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	events := make([][]byte, len(stored))
	for i, m := range stored {
		events[i] = m.Data()
	}
	return limited(events, nil)
}
