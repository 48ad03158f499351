package natsbroker

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"orderpaid/platform/messaging"
)

func unavailable(err error) error { return fmt.Errorf("%w: %w", messaging.ErrUnavailable, err) }
func refused(err error) error     { return fmt.Errorf("%w: %w", messaging.ErrRefused, err) }
func unknown(err error) error     { return fmt.Errorf("%w: %w", messaging.ErrUnknownOutcome, err) }

// The server's error codes that mean something other than their status class.
// https://github.com/nats-io/nats-server/blob/main/server/errors.json
const (
	codeNoStorage       jetstream.ErrorCode = 10047
	codeMessageTooLarge jetstream.ErrorCode = 10054
	codeTooManyBatches  jetstream.ErrorCode = 10210
)

// sendOutcome says what an error of the client means for a message that it did
// not send.
func sendOutcome(err error) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return refused(err)
	default: // disconnected, closed, stalled
		return unavailable(err)
	}
}

// answerOutcome says what an answer, or its absence, means for a message that
// was sent.
func answerOutcome(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		return serverOutcome(api)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return unavailable(err)
	default: // timeout, disconnected while waiting, an answer that is no acknowledgement
		return unknown(err)
	}
}

// serverOutcome sorts the server's refusals; all say that nothing was stored.
// Only what names the message itself is its fault. Everything else, whatever
// its status, can be mended without touching the message: a stream that is
// full, sealed or of the wrong name, an account whose storage is used up. To
// take one of those for the message's fault would hand the whole outbox to a
// person.
func serverOutcome(api *jetstream.APIError) error {
	if api.ErrorCode == codeMessageTooLarge {
		return refused(api)
	}
	return unavailable(api)
}

// batchOutcome does the same for an atomic batch. The commit goes last, so an
// error of the client before it means that the server drops the batch.
func batchOutcome(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && (api.ErrorCode == codeTooManyBatches || api.Code >= 400 && api.Code < 500 && api.Code != 429):
		return refused(api) // of the batch: each message then answers for itself
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrMaxPayload),
		errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return sendOutcome(err)
	default:
		return answerOutcome(err)
	}
}
