package shopctl_test

import (
	"bytes"
	"context"
	"errors"
	"io"
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

func TestWithoutABrokerTheTopologySaysWhichOneIsMissing(t *testing.T) {
	t.Parallel()
	flags := shopctl.TopologyFlags{NATSURL: "nats://me:hidden@127.0.0.1:1"}
	for name, run := range map[string]func(context.Context, io.Writer) error{
		"plan": shopctl.TopologyPlan{TopologyFlags: flags}.Run, "apply": shopctl.TopologyApply{TopologyFlags: flags}.Run,
	} {
		err := run(t.Context(), io.Discard)
		if err == nil {
			t.Fatalf("%s: got no error", name)
		}
		requireIn(t, err.Error(), "no broker at 127.0.0.1:1", "start scripts/demo", "--nats-url", "NATS_URL")
		if strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: got %v, which repeats the password", name, err)
		}
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
