package natsbroker

import (
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A delivery implements [messaging.Delivery]. Its answers go straight to the
// connection, so that they work after its source is closed: a consumer that
// shuts down still finishes and acknowledges what it has.
type delivery struct {
	nc       *nats.Conn
	msg      *nats.Msg
	meta     *nats.MsgMetadata
	answered atomic.Bool
}

func (d *delivery) Data() []byte                 { return d.msg.Data }
func (d *delivery) Subject() string              { return d.msg.Subject }
func (d *delivery) Header(name string) string    { return d.msg.Header.Get(name) }
func (d *delivery) Headers() map[string][]string { return d.msg.Header }
func (d *delivery) Stream() string               { return d.meta.Stream }
func (d *delivery) Sequence() uint64             { return d.meta.Sequence.Stream }
func (d *delivery) Attempt() int                 { return int(d.meta.NumDelivered) }
func (d *delivery) StoredAt() time.Time          { return d.meta.Timestamp }

// The answers of the JetStream protocol.
// https://docs.nats.io/using-nats/developer/develop_jetstream/consumers
const (
	ackDone     = "+ACK"
	ackAgain    = "-NAK"
	ackProgress = "+WPI"
)

var errAnswered = errors.New("the message was answered before")

func (d *delivery) Ack() error { return d.answer(ackDone) }

func (d *delivery) Retry(after time.Duration) error {
	if after <= 0 {
		return d.answer(ackAgain)
	}
	return d.answer(ackAgain + ` {"delay": ` + strconv.FormatInt(int64(after), 10) + `}`)
}

func (d *delivery) InProgress() error { return d.nc.Publish(d.msg.Reply, []byte(ackProgress)) }

func (d *delivery) answer(what string) error {
	if d.answered.Swap(true) {
		return errAnswered
	}
	return d.nc.Publish(d.msg.Reply, []byte(what))
}
