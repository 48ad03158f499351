package operator

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"orderpaid/platform/opsapi"
)

// checkFacts follows a page of facts: to their events, to the stream, to the
// inboxes of everybody who reads them, and to the effects.
func (r *reconciliation) checkFacts(ctx context.Context, owner string, facts []opsapi.StagedFact) error {
	r.report.Facts += len(facts)
	published := make([]opsapi.StagedFact, 0, len(facts))
	for _, f := range facts {
		if f.State == opsapi.FactPublished {
			published = append(published, f)
		} else if r.settled(owner, f.At) {
			r.found(unpublished(owner, f))
		}
	}
	lost, err := r.checkStream(ctx, owner, published)
	if err != nil {
		return err
	}
	byReader := map[reader][]opsapi.StagedFact{}
	for _, f := range published {
		if !r.settled(owner, f.PublishedAt) {
			continue
		}
		for _, reader := range r.consumers[f.Kind] {
			byReader[reader] = append(byReader[reader], f)
		}
	}
	for reader, facts := range byReader {
		if err := r.checkConsumer(ctx, owner, reader, facts, lost); err != nil {
			return err
		}
	}
	return nil
}

// unpublished says what is wrong with a fact whose event is not published.
func unpublished(owner string, f opsapi.StagedFact) Finding {
	finding := Finding{Service: owner, Owner: owner, Event: f.Ref()}
	show := "shopctl outbox show " + f.EventID.String()
	switch f.State {
	case opsapi.FactUnstaged:
		finding.Check, finding.Says = CheckUnstaged, "the change is there and its event was never staged; no command can make it up"
		finding.Look = "shopctl why " + f.Key
	case opsapi.FactOrphan:
		finding.Check, finding.Repair, finding.Says, finding.Look = CheckOrphan, RepairRepublish, "staged, and neither queued nor held nor published", show
	case opsapi.FactFailed:
		finding.Check, finding.Says, finding.Look = CheckRefused, "a person must release it: shopctl outbox release", show
	default:
		finding.Check, finding.Says, finding.Look = CheckQueued, "it is "+f.State+" still: is a relay running?", show
	}
	return finding
}

// checkStream returns the events that should be on the stream and are not.
func (r *reconciliation) checkStream(ctx context.Context, owner string, published []opsapi.StagedFact) (lost map[uuid.UUID]bool, err error) {
	lost = map[uuid.UUID]bool{}
	if r.stream == nil || len(published) == 0 {
		return lost, nil
	}
	var expected []opsapi.StagedFact
	for _, f := range published {
		if r.stream.aged(f.PublishedAt, r.now(owner)) {
			r.report.Aged++
		} else {
			expected = append(expected, f)
		}
	}
	r.report.OnStream += len(expected)
	missing, err := r.stream.missing(ctx, expected)
	if err != nil { // the broker went away: what was found so far stands
		r.report.Silent = append(r.report.Silent, Silence{"stream", err.Error()})
		r.stream = nil
		return lost, ctx.Err()
	}
	for _, f := range missing {
		lost[f.EventID] = true
		r.found(Finding{Check: CheckLost, Service: owner, Owner: owner, Event: f.Ref(), Repair: RepairRepublish,
			Says: fmt.Sprintf("the broker acknowledged it as %s/%d and does not have it any more", f.Stream, f.StreamSeq),
			Look: "shopctl outbox show " + f.EventID.String()})
	}
	return lost, nil
}

// checkConsumer compares published events with one consumer's inbox, and what
// the inbox says with the consumer's own rows.
func (r *reconciliation) checkConsumer(ctx context.Context, owner string, at reader, facts []opsapi.StagedFact, lost map[uuid.UUID]bool) error {
	if r.isSilent(at.client) {
		return nil
	}
	r.report.Handled += len(facts)
	ids := make([]uuid.UUID, len(facts))
	for i, f := range facts {
		ids[i] = f.EventID
	}
	found, err := at.client.InboxLookup(ctx, ids)
	if err != nil {
		r.silent(at.client, err)
		return ctx.Err()
	}
	results, explained := map[uuid.UUID]string{}, map[uuid.UUID]bool{}
	for _, s := range found.Seen {
		if s.Consumer == at.consumer {
			results[s.EventID] = s.Result
		}
	}
	for _, f := range found.Failures {
		if f.Consumer == at.consumer && f.EventID != nil && (unresolved(f.State) || f.ReplacedBy != nil) {
			explained[*f.EventID] = true
		}
	}
	var applied, stale []opsapi.StagedFact
	for _, f := range facts {
		result, seen := results[f.EventID]
		switch {
		case result == "applied":
			applied = append(applied, f)
		case result == "stale":
			stale = append(stale, f)
		case seen: // expired, discarded, already there: no row of its own is owed
		case explained[f.EventID]:
			r.report.Waiting++
		default:
			r.found(unread(owner, at, f, lost[f.EventID]))
		}
	}
	if err := r.checkStale(ctx, owner, at, stale); err != nil {
		return err
	}
	return r.checkApplied(ctx, owner, at, applied)
}

func unread(owner string, at reader, f opsapi.StagedFact, lost bool) Finding {
	finding := Finding{Check: CheckUnread, Service: at.client.Service(), Consumer: at.consumer, Owner: owner, Event: f.Ref(),
		Repair: RepairReplay, Says: "neither applied nor recorded as a failure", Look: "shopctl why " + f.Key}
	if lost { // published again, it comes to the consumer by itself
		finding.Repair, finding.Says = RepairRepublish, "not applied, and not on the stream"
	}
	return finding
}

// checkApplied looks for the rows that applied events must have led to.
func (r *reconciliation) checkApplied(ctx context.Context, owner string, at reader, applied []opsapi.StagedFact) error {
	if len(applied) == 0 {
		return nil
	}
	refs := make([]opsapi.EventRef, len(applied))
	for i, f := range applied {
		refs[i] = f.Ref()
	}
	effects, err := at.client.EffectsOf(ctx, refs)
	if err != nil {
		r.silent(at.client, err)
		return ctx.Err()
	}
	has := make(map[uuid.UUID]bool, len(effects))
	for _, e := range effects {
		has[e.EventID] = true
	}
	for _, ref := range refs {
		if !has[ref.EventID] {
			r.found(Finding{Check: CheckNoEffect, Service: at.client.Service(), Consumer: at.consumer, Owner: owner, Event: ref,
				Says: "the inbox says applied and the row is not there: the database has lost it", Look: "shopctl why " + ref.Key})
		}
	}
	return nil
}

// checkEffects looks for the events that a page of effects was made for. Every
// service is asked, because an effect does not say whose event it was.
func (r *reconciliation) checkEffects(ctx context.Context, service string, effects []opsapi.Effect) error {
	r.report.Effects += len(effects)
	if len(effects) == 0 {
		return nil
	}
	var asked opsapi.OutboxLookup
	for _, e := range effects {
		if e.EventID != uuid.Nil {
			asked.EventIDs = append(asked.EventIDs, e.EventID)
		} else if e.Version > 0 {
			asked.Versions = append(asked.Versions, opsapi.EventRef{AggregateID: e.ID, AggregateVersion: e.Version})
		}
	}
	answers := ask(ctx, r.fleet, func(ctx context.Context, c *opsapi.Client) (opsapi.OutboxFound, error) {
		return c.OutboxLookup(ctx, asked)
	})
	events, versions := map[uuid.UUID]bool{}, map[version]bool{}
	for _, a := range answers {
		if a.err != nil { // it may be the one that knows: no finding is certain
			r.silent(a.client, a.err)
			return ctx.Err()
		}
		for _, id := range a.value.EventIDs {
			events[id] = true
		}
		for _, v := range a.value.Versions {
			versions[version{v.AggregateID, v.AggregateVersion}] = true
		}
	}
	for _, e := range effects {
		caused := e.EventID == uuid.Nil && e.Version == 0 || events[e.EventID] || versions[version{e.ID, e.Version}]
		if !caused && !r.mayBeAway(e.EventID) { // a dead letter may have waited for longer than its event is kept
			r.found(Finding{Check: CheckNoCause, Service: service, Event: opsapi.EventRef{EventID: e.EventID, AggregateID: e.ID, AggregateVersion: e.Version, Key: e.Key},
				Says: fmt.Sprintf("%s %s was made for an event that no outbox holds", e.What, e.ID), Look: "shopctl why " + e.Key})
		}
	}
	return nil
}

// A version names one version of an aggregate.
type version struct {
	aggregate string
	number    int64
}
