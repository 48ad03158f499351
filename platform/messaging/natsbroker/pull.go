package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"orderpaid/platform/messaging"
)

// prefetchBytes bounds the memory of one subscription's waiting messages,
// whatever their number.
const prefetchBytes = 32 << 20

// A request asks the server for messages. There is never more than one under
// way, so that its end, by count, by time or by trouble, is never in doubt.
// https://docs.nats.io/reference/reference-protocols/nats_api_reference
type request struct {
	number int       // the last token of its inbox: a late status is told from a new one
	open   int       // messages that the server may still send for it
	heard  time.Time // the last sign of life
}

// listen opens the inbox that messages and statuses arrive in.
func (s *source) listen() error {
	prefix := s.b.nc.NewInbox()
	inbox, err := s.b.nc.Subscribe(prefix+".*", func(m *nats.Msg) { s.receive(prefix, m) })
	if err != nil {
		return err
	}
	// What may arrive is bounded by the requests; the client's own bound would
	// only drop messages.
	if err := inbox.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	s.mu.Lock()
	s.inbox = inbox
	s.mu.Unlock()
	return nil
}

// requestMore sends a request when the last one is over and half of the room
// is free: a group is worked on while the next one is on its way.
func (s *source) requestMore() {
	s.mu.Lock()
	room := s.b.cfg.Prefetch - len(s.ready)
	bytes := prefetchBytes - s.readyBytes
	if s.closed || s.gone || s.request.open > 0 || room < (s.b.cfg.Prefetch+1)/2 || bytes < prefetchBytes/2 {
		s.mu.Unlock()
		return
	}
	s.request = request{number: s.request.number + 1, open: room, heard: time.Now()}
	reply := strings.TrimSuffix(s.inbox.Subject, "*") + strconv.Itoa(s.request.number)
	s.mu.Unlock()

	body, err := json.Marshal(map[string]any{
		"batch": room, "max_bytes": bytes, "expires": s.b.cfg.PullExpiry, "idle_heartbeat": s.b.cfg.PullExpiry / 4,
	})
	if err == nil {
		err = s.b.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+s.b.cfg.Stream+"."+s.sub.Durable, reply, body)
	}
	if err != nil { // disconnected; the reconnection disturbs
		s.report(err)
	}
}

// receive takes what comes in: events under their own subject, and the
// server's word about a request under the request's inbox.
func (s *source) receive(prefix string, m *nats.Msg) {
	if number, isStatus := strings.CutPrefix(m.Subject, prefix+"."); isStatus {
		s.status(number, m.Header.Get("Status"), m.Header.Get("Description"))
		return
	}
	meta, err := m.Metadata()
	if err != nil { // not from JetStream; anybody may write to an inbox that he can guess
		s.report(fmt.Errorf("a message on %s: %w", m.Subject, err))
		return
	}
	d, wanted := &delivery{nc: s.b.nc, msg: m, meta: meta}, !s.liesBetween(m.Subject)
	if !wanted {
		_ = d.Ack() // if it is lost, the message comes again
	}
	s.mu.Lock()
	if wanted {
		s.ready = append(s.ready, d)
		s.readyBytes += len(m.Data)
	}
	s.request.heard = time.Now()
	s.looked, s.starved, s.remedies, s.err = s.request.heard, false, 0, nil
	over := false
	if s.request.open > 0 {
		s.request.open--
		over = s.request.open == 0
	}
	s.mu.Unlock()
	signal(s.arrived)
	if over {
		signal(s.room)
	}
}

// liesBetween reports whether a message is one that a wide subscription gets
// and does not want. To any other subscription it is the consumer's, whatever
// it is: dropped here, it would be a loss that nobody sees.
func (s *source) liesBetween(subject string) bool { return s.sub.Wide && !s.kinds.has(subject) }

// status ends the request, unless it is a heartbeat.
func (s *source) status(number, code, description string) {
	s.mu.Lock()
	if number != strconv.Itoa(s.request.number) {
		s.mu.Unlock()
		return
	}
	s.request.heard = time.Now()
	if code == "100" {
		s.mu.Unlock()
		return
	}
	s.request.open = 0
	s.mu.Unlock()
	switch {
	case code == "408", description == "Message Size Exceeds MaxBytes", description == "Batch Completed":
		signal(s.room) // it has run its time, or brought all that it could
	default: // deleted, another leader, nobody there, refused: look before asking again
		s.report(fmt.Errorf("%w: status %s %s", messaging.ErrUnavailable, code, description))
		signal(s.trouble)
	}
}

// stalled reports whether messages fail to come although they should: the
// server has let two heartbeats pass, or it sends heartbeats and holds
// messages back. The second is a fault of servers that a new request, or a new
// connection, is known to cure. It must be seen twice in a row, because a
// message that has just been stored looks the same.
func (s *source) stalled(ctx context.Context) bool {
	s.mu.Lock()
	silent := s.request.open > 0 && time.Since(s.request.heard) > s.b.cfg.PullExpiry/2
	idle := len(s.ready) == 0 && time.Since(s.looked) > 2*s.b.cfg.PullExpiry
	s.mu.Unlock()
	if silent || !idle || !s.b.nc.IsConnected() {
		return silent
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	info, err := s.b.inspect(ctx, s.sub)
	if err != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.starved
	s.starved = info.NumPending > 0 && info.NumAckPending == 0 && !info.Paused
	if s.starved && !before {
		return false // look again at the next pulse
	}
	s.looked = time.Now()
	return s.starved
}

const inspectTimeout = 2 * time.Second

// recover gets messages flowing again, however long it takes: it makes sure
// that the durable is still the one that was bound, and requests anew. A stall
// is cured with a new inbox, and the next one with a new connection.
//
// Troubles that follow each other closely are met with longer and longer
// pauses: a request that the server refuses would be refused again at once.
func (s *source) recover(ctx context.Context, stall bool) {
	if stall {
		s.cure()
	}
	if time.Since(s.recovered) > 2*maxRecoveryPause {
		s.pause = 0
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.pause):
		}
		s.pause = min(max(2*s.pause, 20*time.Millisecond), maxRecoveryPause)
		err := s.rebind(ctx)
		switch {
		case err == nil:
			s.recovered = time.Now()
			s.requestMore()
			return
		case errors.Is(err, messaging.ErrSubscriptionGone):
			s.mu.Lock()
			s.gone = true
			s.mu.Unlock()
			signal(s.arrived)
			return
		}
		s.report(err)
	}
}

const maxRecoveryPause = 2 * time.Second

func (s *source) cure() {
	s.mu.Lock()
	s.remedies++
	remedies, inbox := s.remedies, s.inbox
	s.mu.Unlock()
	s.b.cfg.Logger.Warn("subscription has stalled and is renewed", "durable", s.sub.Durable, "remedies", remedies)
	if remedies%2 == 0 {
		_ = s.b.nc.ForceReconnect() // already reconnecting, or closed: no matter
		return
	}
	if err := s.listen(); err == nil {
		_ = inbox.Unsubscribe() // what is on its way to it comes again
	}
}

// rebind checks the durable and forgets the request that is under way.
func (s *source) rebind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	info, err := s.b.inspect(ctx, s.sub)
	if err != nil {
		return err
	}
	if !info.Created.Equal(s.created) {
		return fmt.Errorf("%w: it was deleted and made again at %v", messaging.ErrSubscriptionGone, info.Created)
	}
	s.mu.Lock()
	s.request.open = 0
	s.err = nil // what was wrong is over
	s.mu.Unlock()
	return nil
}

// report leaves an error for Fetch, which returns it when it has nothing else.
func (s *source) report(err error) {
	s.mu.Lock()
	s.err = fmt.Errorf("durable %s: %w", s.sub.Durable, err)
	s.mu.Unlock()
	signal(s.arrived)
}

// drain ends the inbox and waits for what the server had sent before it knew.
func (s *source) drain() {
	s.mu.Lock()
	inbox := s.inbox
	s.mu.Unlock()
	drained := make(chan struct{})
	inbox.SetClosedHandler(func(string) { close(drained) })
	if err := inbox.Drain(); err != nil {
		return // the connection is down or closed: nothing can arrive
	}
	select {
	case <-drained:
	case <-time.After(2 * time.Second):
	}
}
