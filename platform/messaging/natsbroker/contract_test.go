package natsbroker_test

import (
	"testing"

	"orderpaid/platform/messaging/brokertest"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

func TestNatsbrokerKeepsTheContract(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]natsbroker.Config{"batches": {}, "single": {Single: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keepsTheContract(t, cfg)
		})
	}
}

func keepsTheContract(t *testing.T, cfg natsbroker.Config) {
	brokertest.Run(t, func(t *testing.T, setup brokertest.Setup) brokertest.Harness {
		s := natstest.New(t)
		ensure(t, s, natsbroker.Topology{Subscriptions: setup.Subscriptions, AckWait: setup.AckWait})
		p := newProxy(t, s)
		b := connect(t, p.url(), cfg)
		return brokertest.Harness{
			Publisher: b, Subscriber: b,
			LoseAnswers: func(*testing.T) { p.set(cut) },
			DeleteDurable: func(t *testing.T, name string) {
				if err := admin(t, s.URL()).DeleteConsumer(t.Context(), natsbroker.DefaultStream, name); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
