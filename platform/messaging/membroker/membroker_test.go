package membroker_test

import (
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/brokertest"
	"orderpaid/platform/messaging/membroker"
)

func TestMembrokerKeepsTheContract(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, func(_ *testing.T, setup brokertest.Setup) brokertest.Harness {
		b := membroker.New(setup.Subscriptions...)
		b.AckWait = setup.AckWait
		return brokertest.Harness{
			Publisher: b, Subscriber: b,
			LoseAnswers: func(*testing.T) {
				lost := map[string]bool{} // each key's first answer
				b.OnPublish(func(m messaging.Message) membroker.Fault {
					if lost[m.Key] {
						return membroker.None
					}
					lost[m.Key] = true
					return membroker.AnswerLost
				})
			},
			DeleteDurable: func(_ *testing.T, name string) { b.Delete(name) },
		}
	})
}
