package shopctl_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/process"
	"orderpaid/shopctl"
)

func TestThePlanIsEmptyOnceItWasApplied(t *testing.T) {
	t.Parallel()
	flags := shopctl.TopologyFlags{NATSURL: process.Secret(natstest.New(t).URL())}
	var before, applied, after bytes.Buffer
	if err := (shopctl.TopologyPlan{TopologyFlags: flags}).Run(t.Context(), &before); !errors.Is(err, shopctl.ErrDifferences) {
		t.Fatalf("got %v, want %v", err, shopctl.ErrDifferences)
	}
	for _, missing := range []string{"stream EVENTS", "durable points-awarder", "durable notify-sender", "durable search-indexer", "durable order-followups"} {
		if !strings.Contains(before.String(), missing+" is missing") {
			t.Errorf("the plan does not miss %s:\n%s", missing, before.String())
		}
	}
	if err := (shopctl.TopologyApply{TopologyFlags: flags}).Run(t.Context(), &applied); err != nil {
		t.Fatal(err)
	}
	if err := (shopctl.TopologyPlan{TopologyFlags: flags}).Run(t.Context(), &after); err != nil {
		t.Errorf("got %v after it was applied:\n%s", err, after.String())
	}
}

func TestAChangeOfWhatExistsNeedsUpdate(t *testing.T) {
	t.Parallel()
	flags := shopctl.TopologyFlags{NATSURL: process.Secret(natstest.New(t).URL())}
	var out bytes.Buffer
	if err := (shopctl.TopologyApply{TopologyFlags: flags}).Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	flags.MaxBytes = 8 << 30
	if err := (shopctl.TopologyApply{TopologyFlags: flags}).Run(t.Context(), &out); !errors.Is(err, natsbroker.ErrDrift) {
		t.Errorf("got %v, want %v", err, natsbroker.ErrDrift)
	}
	if err := (shopctl.TopologyApply{TopologyFlags: flags, Update: true}).Run(t.Context(), &out); err != nil {
		t.Errorf("got %v with --update", err)
	}
}
