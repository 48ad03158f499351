package demo

import (
	"context"
	"fmt"

	"orderpaid/platform/messaging/natsbroker"
)

// quiet reports whether no event is on its way to a consumer: none waits on
// the stream, and none is delivered and unanswered. What a process that was
// killed had fetched is delivered again only after the acknowledgement wait,
// and a consumer that had forgotten would have its second effect only then; a
// check that looked earlier could not notice.
//
// Where somebody else is placing orders it is never quiet, and not asked.
func (s Site) quiet(ctx context.Context) (bool, error) {
	if s.Lag > 0 {
		return true, nil
	}
	broker, err := natsbroker.Connect(ctx, natsbroker.Config{URL: s.NATSURL, Name: "audit"})
	if err != nil {
		return false, fmt.Errorf("ask the broker what is under way: %w", err)
	}
	defer broker.Close()
	status, err := broker.Status(ctx)
	if err != nil {
		return false, fmt.Errorf("ask the broker what is under way: %w", err)
	}
	for _, consumer := range status.Consumers {
		if consumer.Pending > 0 || consumer.InFlight > 0 {
			return false, nil
		}
	}
	return true, nil
}
