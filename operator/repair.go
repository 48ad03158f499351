package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/faults"
	"orderpaid/platform/opsapi"
)

// RepairConfig says how to mend what a reconciliation has found.
type RepairConfig struct {
	// Reason is kept with every action. Required.
	Reason string

	// DryRun only says what would be done.
	DryRun bool

	// AllowExternal also replays to consumers whose effects reach outside the
	// databases, such as mails.
	AllowExternal bool

	// PerSecond bounds how many events are republished or replayed in a second.
	// Defaults to 200.
	PerSecond int

	// Limit bounds how many findings are mended. Defaults to all.
	Limit int
}

// repairBatch is how many events one command names.
const repairBatch = 200

// A batch is one command: the same repair, of the same service's events, for the
// same consumer.
type batch struct {
	repair, owner, service, consumer string
}

// Repair mends the findings that a command can mend, and notes in each what was
// done. The commands are the ones that a person would give, and safe to repeat:
// events keep their ids, and who has applied one does not do it again. So a run
// that dies in the middle is simply run again.
func (f *Fleet) Repair(ctx context.Context, r *Report, cfg RepairConfig) error {
	cfg.PerSecond = cmp.Or(cfg.PerSecond, 200)
	cfg.Limit = cmp.Or(cfg.Limit, len(r.Findings))
	groups, order := map[batch][]*Finding{}, []batch{}
	for i := range r.Findings {
		finding := &r.Findings[i]
		if finding.Repair == "" || cfg.Limit == 0 {
			continue
		}
		cfg.Limit--
		b := batch{repair: finding.Repair, owner: finding.Owner}
		if finding.Repair == RepairReplay {
			b.service, b.consumer = finding.Service, finding.Consumer
		}
		if groups[b] == nil {
			order = append(order, b)
		}
		groups[b] = append(groups[b], finding)
	}
	// Republish first: what is on the stream again may need no replay.
	slices.SortStableFunc(order, func(a, b batch) int { return cmp.Compare(b.repair, a.repair) })
	for _, b := range order {
		for chunk := range slices.Chunk(groups[b], repairBatch) {
			if err := f.repairChunk(ctx, b, chunk, cfg); err != nil {
				return err
			}
			if !cfg.DryRun {
				faults.Hit("reconcile.between_repairs")
				pause(ctx, time.Duration(len(chunk))*time.Second/time.Duration(cfg.PerSecond))
			}
		}
	}
	return ctx.Err()
}

func (f *Fleet) repairChunk(ctx context.Context, b batch, chunk []*Finding, cfg RepairConfig) (err error) {
	var ids []uuid.UUID
	for _, finding := range chunk {
		if !slices.Contains(ids, finding.Event.EventID) { // lost on the stream and not consumed, at once
			ids = append(ids, finding.Event.EventID)
		}
	}
	var done string
	if b.repair == RepairRepublish {
		done, err = f.republish(ctx, b, ids, cfg)
	} else {
		done, err = f.replay(ctx, b, ids, cfg)
	}
	if err != nil {
		return fmt.Errorf("repair %d findings: %w", len(chunk), err)
	}
	for _, finding := range chunk {
		finding.Repaired = done
	}
	return nil
}

func (f *Fleet) republish(ctx context.Context, b batch, ids []uuid.UUID, cfg RepairConfig) (string, error) {
	if cfg.DryRun {
		return "would be published again", nil
	}
	c, err := f.Service(b.owner)
	if err != nil {
		return "", err
	}
	if _, err := c.Republish(ctx, ids, cfg.Reason); err != nil {
		return "", err
	}
	return "queued to be published again", nil
}

func (f *Fleet) replay(ctx context.Context, b batch, ids []uuid.UUID, cfg RepairConfig) (string, error) {
	c, err := f.Service(b.service)
	if err != nil {
		return "", err
	}
	request := opsapi.ReplayRequest{Consumer: b.consumer, From: opsapi.Selection{Source: "outbox", EventIDs: ids},
		AllowExternal: cfg.AllowExternal, PerSecond: cfg.PerSecond, Reason: cfg.Reason}
	if cfg.DryRun {
		plan, err := c.PlanReplay(ctx, request)
		return fmt.Sprintf("would be replayed to %s (%s)", b.consumer, Outcomes(plan.Expected)), err
	}
	plan, err := c.CreateReplay(ctx, request)
	if err != nil {
		return "", err
	}
	if plan.NeedsApproval {
		return fmt.Sprintf("replay %s waits for a second person", plan.ReplayID), nil
	}
	if _, err := c.MoveReplay(ctx, plan.ReplayID, "start", cfg.Reason); err != nil {
		return "", err
	}
	return fmt.Sprintf("replay %s to %s has begun", plan.ReplayID, b.consumer), nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
