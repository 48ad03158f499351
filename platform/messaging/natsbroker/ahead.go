package natsbroker

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// A replicated stream that has lost messages gives their sequences to others.
// A durable remembers how far it was, and passes over what it believes to have
// behind it: nothing is pending then, nothing fails, and new events have no
// effect. (A server puts a durable with one replica back when it starts.)

// ahead returns how many sequences a durable has behind it that its stream has
// still to give. Both grow while they are read, so the stream is asked again
// before a durable is said to be ahead of it.
func ahead(ctx context.Context, stream jetstream.Stream, c *jetstream.ConsumerInfo) (uint64, error) {
	at := furthest(c)
	if at <= stream.CachedInfo().State.LastSeq {
		return 0, nil
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read how far the stream is: %w", err)
	}
	return at - min(at, info.State.LastSeq), nil
}

func furthest(c *jetstream.ConsumerInfo) uint64 { return max(c.Delivered.Stream, c.AckFloor.Stream) }
