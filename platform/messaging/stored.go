package messaging

import "time"

// storedFailure is a row of message_failure that is being tried again.
type storedFailure struct {
	FailureID      int64
	Payload        []byte
	SealedBy       *string
	Stream         string
	StreamSeq      int64
	Subject        string
	BudgetAttempts int
	BudgetSpent    time.Duration
}

// storedDelivery is an event that comes from message_failure or from another
// service's outbox: the broker has no part in it.
type storedDelivery struct {
	from *storedFailure
	data []byte
}

func (d *storedDelivery) Data() []byte                 { return d.data }
func (d *storedDelivery) Subject() string              { return d.from.Subject }
func (d *storedDelivery) Header(string) string         { return "" }
func (d *storedDelivery) Headers() map[string][]string { return map[string][]string{} }
func (d *storedDelivery) Stream() string               { return d.from.Stream }
func (d *storedDelivery) Sequence() uint64             { return uint64(d.from.StreamSeq) }
func (d *storedDelivery) Attempt() int                 { return d.from.BudgetAttempts + 1 }
func (d *storedDelivery) StoredAt() time.Time          { return time.Time{} }
func (d *storedDelivery) Ack() error                   { return nil }
func (d *storedDelivery) Retry(time.Duration) error    { return nil }
func (d *storedDelivery) InProgress() error            { return nil }
