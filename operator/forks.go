package operator

import (
	"context"

	"github.com/google/uuid"

	"orderpaid/platform/opsapi"
)

// A database that was restored from a backup, or a standby that was promoted
// before it had everything, may lack events that others have got. Its owner then
// makes the same versions again, as other events. A consumer that counts versions
// has them already and passes the new ones over: what it shows stays that of a
// history which is no more.

// checkStale looks at events that a consumer has passed over because it had a
// later version. That is as it must be if their owner has the events which the
// consumer applied instead. There are few: what comes late, comes twice, or was
// made anew.
func (r *reconciliation) checkStale(ctx context.Context, owner string, at reader, stale []opsapi.StagedFact) error {
	if len(stale) == 0 {
		return nil
	}
	outbox, err := r.fleet.Service(owner)
	if err != nil {
		return err
	}
	for _, f := range stale {
		evidence, err := at.client.Evidence(ctx, f.AggregateID)
		if err != nil {
			r.silent(at.client, err)
			return ctx.Err()
		}
		var applied []uuid.UUID
		for _, s := range evidence.Seen {
			if s.Consumer == at.consumer && s.AggregateID == f.AggregateID && (s.Result == "applied" || s.Result == "rebuilt") && !r.mayBeAway(s.EventID) {
				applied = append(applied, s.EventID)
			}
		}
		found, err := outbox.OutboxLookup(ctx, opsapi.OutboxLookup{EventIDs: applied})
		if err != nil {
			r.silent(outbox, err)
			return ctx.Err()
		}
		if len(found.EventIDs) < len(applied) {
			r.found(Finding{Check: CheckForked, Service: at.client.Service(), Consumer: at.consumer, Owner: owner, Event: f.Ref(),
				Says: "the consumer has applied versions that their owner does not know any more: the owner's database was restored to a time before them",
				Look: "shopctl why " + f.Key})
		}
	}
	return nil
}
