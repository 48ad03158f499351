package natsbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Status is what the server says about the stream and its durables, for
// people and metrics.
type Status struct {
	Stream    string          `json:"stream"`
	Messages  uint64          `json:"messages"`
	Bytes     uint64          `json:"bytes"`     // on disk
	MaxBytes  int64           `json:"max_bytes"` // the bound of Bytes; -1 for none
	MaxAge    time.Duration   `json:"max_age"`   // after which a message goes, read or not; 0: never
	FirstSeq  uint64          `json:"first_seq"`
	LastSeq   uint64          `json:"last_seq"`
	LastAt    time.Time       `json:"last_at"`
	Replicas  int             `json:"replicas"`
	Lag       uint64          `json:"lag"` // entries that the replica furthest behind lacks
	Consumers []DurableStatus `json:"consumers"`
}

// DurableStatus is how far one durable is.
type DurableStatus struct {
	Durable     string    `json:"durable"`
	Pending     uint64    `json:"pending"`            // matching messages that were never delivered
	InFlight    int       `json:"in_flight"`          // delivered and not acknowledged
	Redelivered int       `json:"redelivered"`        // of these, delivered more than once
	OldestAt    time.Time `json:"oldest_at,omitzero"` // when the stream got the first message that is not acknowledged; zero if all are
	AckFloor    uint64    `json:"ack_floor"`          // stream sequence up to which all is acknowledged
	Handled     uint64    `json:"handled"`            // deliveries acknowledged so far, one after another
	Ahead       uint64    `json:"ahead"`              // sequences that the stream has still to give, and that it would skip; 0 in health
}

// Status asks the server. It needs the permissions to read the stream's and
// the consumers' information; without that to read messages, OldestAt is not
// known and stays zero.
func (b *Broker) Status(ctx context.Context) (Status, error) {
	if !b.nc.IsConnected() {
		return Status{}, unavailable(errNotConnected)
	}
	stream, err := b.js.Stream(ctx, b.cfg.Stream)
	if err != nil {
		return Status{}, fmt.Errorf("read status of stream %s: %w", b.cfg.Stream, err)
	}
	info := stream.CachedInfo()
	s := Status{
		Stream: b.cfg.Stream, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxBytes: info.Config.MaxBytes, MaxAge: info.Config.MaxAge,
		FirstSeq: info.State.FirstSeq, LastSeq: info.State.LastSeq, LastAt: info.State.LastTime, Replicas: info.Config.Replicas,
	}
	if info.Cluster != nil {
		for _, peer := range info.Cluster.Replicas {
			s.Lag = max(s.Lag, peer.Lag)
		}
	}
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		d := DurableStatus{
			Durable: c.Name, Pending: c.NumPending, InFlight: c.NumAckPending, Redelivered: c.NumRedelivered, AckFloor: c.AckFloor.Stream, Handled: c.AckFloor.Consumer,
		}
		if d.Pending > 0 || d.InFlight > 0 {
			d.OldestAt = oldest(ctx, stream, c)
		}
		if d.Ahead, err = ahead(ctx, stream, c); err != nil {
			return Status{}, fmt.Errorf("read status of durable %s: %w", c.Name, err)
		}
		s.Consumers = append(s.Consumers, d)
	}
	if err := list.Err(); err != nil {
		return Status{}, fmt.Errorf("read status of durables: %w", err)
	}
	return s, nil
}

// oldest returns when the first message behind a durable's acknowledgements
// was stored. Nothing is counted for it: the server finds the message by its
// subjects, of which a durable has a few.
func oldest(ctx context.Context, stream jetstream.Stream, c *jetstream.ConsumerInfo) (at time.Time) {
	subjects := c.Config.FilterSubjects
	if c.Config.FilterSubject != "" {
		subjects = []string{c.Config.FilterSubject}
	}
	for _, subject := range subjects {
		m, err := stream.GetMsg(ctx, c.AckFloor.Stream+1, jetstream.WithGetMsgSubject(subject))
		if err == nil && (at.IsZero() || m.Time.Before(at)) {
			at = m.Time
		}
	}
	return at
}
