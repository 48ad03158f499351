package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// MailerConfig says which mail server takes our mail.
type MailerConfig struct {
	Addr     string        // host:port
	TLS      TLSMode       // Defaults to TLSIfOffered
	Username string        // empty: no authentication
	Password string        // never sent in the clear
	Timeout  time.Duration // of one mail, from the dialling to the answer. Defaults to 15 s
	Idle     int           // connections kept open. Defaults to 8
}

// TLSMode says whether the way to the mail server is encrypted.
type TLSMode string

// The modes.
const (
	TLSIfOffered TLSMode = "offered"  // STARTTLS if the server has it
	TLSStart     TLSMode = "starttls" // STARTTLS, or no mail
	TLSFromStart TLSMode = "tls"      // TLS from the first byte
	TLSNever     TLSMode = "none"
)

// A Mailer hands mails to one server, and says what is known about each
// afterwards. It is safe for concurrent use.
type Mailer struct {
	cfg      MailerConfig
	host     string
	port     int
	hostname string // ours, for the greeting
	idle     chan *connection
}

// NewMailer returns a mailer. It does not connect: a mail server that is away
// must not stop a service from starting.
func NewMailer(cfg MailerConfig) (*Mailer, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultSendTimeout
	}
	if cfg.Idle == 0 {
		cfg.Idle = defaultConcurrency
	}
	if cfg.TLS == "" {
		cfg.TLS = TLSIfOffered
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("address of the mail server %q is not host:port", cfg.Addr)
	}
	m := &Mailer{cfg: cfg, host: host, idle: make(chan *connection, cfg.Idle)}
	if m.port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("port of the mail server %q is not a number", cfg.Addr)
	}
	if m.hostname, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("name of this machine: %w", err)
	}
	if _, err := m.client(nil); err != nil {
		return nil, fmt.Errorf("mail server %s: %w", cfg.Addr, err)
	}
	return m, nil
}

// A Result is what is known about a mail after an attempt to send it.
type Result struct {
	Outcome Outcome
	Reply   string // the server's status, such as 550 5.1.1; empty if there was none
	Err     error  // what stopped an Unavailable; without addresses, for the log
}

// Send hands msg to the server. It returns after the mailer's timeout at the
// latest; if ctx ends earlier, the mail is cut off, whatever that leaves.
func (m *Mailer) Send(ctx context.Context, msg *mail.Msg) Result {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	select {
	case kept := <-m.idle:
		if result, alive := m.sendOver(ctx, kept, msg); alive {
			return result
		}
		// The server has closed a connection that nothing was sent on. That
		// is its right, and says nothing about the server or the mail.
	default:
	}
	fresh, err := m.dial(ctx)
	if err != nil {
		return Result{Outcome: Unavailable, Err: err}
	}
	result, _ := m.sendOver(ctx, fresh, msg)
	return result
}

// Close hangs up the connections that are idle.
func (m *Mailer) Close() {
	for {
		select {
		case kept := <-m.idle:
			kept.raw.Close()
		default:
			return
		}
	}
}

// A connection to the server. raw is the socket below, which can be closed
// while client is blocked on it.
type connection struct {
	owner  *mail.Client
	client *smtp.Client
	raw    net.Conn
}

// sendOver reports alive = false if the connection was dead before the mail
// began.
func (m *Mailer) sendOver(ctx context.Context, c *connection, msg *mail.Msg) (r Result, alive bool) {
	stop := context.AfterFunc(ctx, func() { c.raw.Close() })
	err := c.owner.SendWithSMTPClient(c.client, msg)
	cut := !stop()
	r, reusable := judge(err, msg.IsDelivered())
	if cut || !reusable || !m.keep(c) {
		c.raw.Close()
	}
	var failure *mail.SendError
	alive = !errors.As(err, &failure) || failure.Reason != mail.ErrConnCheck
	return r, alive
}

func (m *Mailer) keep(c *connection) bool {
	select {
	case m.idle <- c:
		return true
	default:
		return false
	}
}

// judge says what an error of the library means for the mail. reusable: the
// server answered, so the connection is between two mails.
//
// The library returns errors also for mails that were accepted, when what
// comes after them fails; delivered is what it knows.
func judge(err error, delivered bool) (r Result, reusable bool) {
	if err == nil {
		return Result{Outcome: Accepted}, true
	}
	if delivered {
		return Result{Outcome: Accepted}, false
	}
	var failure *mail.SendError
	if !errors.As(err, &failure) {
		return Result{Outcome: Deferred}, false
	}
	code := failure.ErrorCode()
	if code > 0 {
		r.Reply = strconv.Itoa(code)
		if enhanced := failure.EnhancedStatusCode(); enhanced != "" {
			r.Reply += " " + enhanced
		}
	}
	switch {
	case failure.Reason == mail.ErrConnCheck:
		r.Outcome, r.Err = Unavailable, errors.New("the connection broke before the mail began")
	case code == 421: // closing, whatever the mail is
		r.Outcome, r.Err = Unavailable, errors.New("the mail server answered "+r.Reply)
	case code >= 400 && failure.Reason == mail.ErrSMTPMailFrom:
		// It is the sender who is refused: us. All mails would fail for what a
		// person has to mend in the configuration, or for a disk that is full.
		r.Outcome, r.Err = Unavailable, errors.New("the mail server refuses the sender with "+r.Reply)
	case code >= 500 && aboutUs(code, failure.EnhancedStatusCode()), code == tooMany && failure.Reason != mail.ErrSMTPRcptTo:
		r.Outcome, r.Err = Unavailable, errors.New("the mail server refuses us with "+r.Reply)
	case code >= 500 && failure.Reason == mail.ErrSMTPRcptTo && relayDenied(failure.Error()):
		r.Outcome = Deferred
	case code >= 500 && passes(failure.EnhancedStatusCode()):
		r.Outcome = Deferred
	case code >= 500:
		r.Outcome = Rejected
	case code == 0 && failure.Reason == mail.ErrSMTPDataClose:
		r.Outcome = Unanswered // the last byte was sent, or may have been
	default:
		r.Outcome = Deferred
	}
	return r, code > 0 && code != 421
}

// passes reports whether a refusal is called permanent and is not (RFC 3463): the
// mailbox is full, and somebody empties it; or the system that is to take the
// mail is full, accepts none, or is wrongly configured. Which system that is, the
// server's own or the recipient's behind it, nobody can tell, so the mail is put
// off, within its budget, and not the sending of all others.
func passes(enhanced string) bool {
	switch enhanced {
	case "5.2.2", "5.3.1", "5.3.2", "5.3.5":
		return true
	}
	return false
}

// aboutUs reports whether a refusal is of whoever sends: we have not signed in, or
// have used up our quota of the day. Servers say so where they like, also to a recipient. It is
// called permanent and passes all the same, with the hour or with a person who
// mends it; a day of mails must not have failed for good by then.
//
// Codes that servers give to spam and to unknown recipients as well, such as
// 5.7.1, are left to the mail.
func aboutUs(code int, enhanced string) bool {
	switch code {
	case 530, 534, 535, 538: // authentication or TLS is required, or failed (RFC 4954, RFC 3207)
		return true
	}
	switch enhanced { // RFC 3463
	case "5.4.5", // congestion; a quota that is used up, too
		"5.7.8": // credentials are wrong (RFC 4954)
		return true
	}
	return false
}

// tooMany is what some servers say to more mails a second, or a day, than they
// take of us. That may last longer than the attempts of a mail. To a recipient it
// says that mails there are not relayed.
const tooMany = 454

// relayDenied reports whether a recipient was refused with "Relay access
// denied", "Relaying denied", "Unable to relay" or the like. It has no status of
// its own. A server says so to everybody when it no longer knows us, and then
// every mail would fail for good within minutes; or to one recipient, because
// it has rules of where mails may go. So the mail is put off, within its budget.
//
// Addresses and names of servers have no say in this: relay1.example.net may know
// nobody there.
func relayDenied(said string) bool {
	return slices.ContainsFunc(strings.Fields(strings.ToLower(said)), func(word string) bool {
		return strings.HasPrefix(word, "relay") && !strings.ContainsAny(strings.TrimRightFunc(word, unicode.IsPunct), "@.[")
	})
}

func (m *Mailer) dial(ctx context.Context) (*connection, error) {
	var raw net.Conn
	owner, err := m.client(&raw)
	if err != nil {
		return nil, err
	}
	client, err := owner.DialToSMTPClientWithContext(ctx)
	if err != nil {
		if raw != nil { // the library leaves it open when the greeting fails
			raw.Close()
		}
		return nil, fmt.Errorf("reach mail server %s: %w", m.cfg.Addr, err)
	}
	return &connection{owner, client, raw}, nil
}

// client configures the library. The socket that it dials is stored in raw.
func (m *Mailer) client(raw *net.Conn) (*mail.Client, error) {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := m.dialSocket(ctx, network, addr)
		*raw = conn
		return conn, err
	}
	options := []mail.Option{
		mail.WithPort(m.port), mail.WithTimeout(m.cfg.Timeout), mail.WithHELO(m.hostname), mail.WithDialContextFunc(dial),
		mail.WithoutRset(), // after an accepted mail there is nothing to reset, and its failure would look like the mail's
	}
	switch m.cfg.TLS {
	case TLSStart:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	case TLSIfOffered, TLSFromStart: // the latter is encrypted by dialSocket, and nothing is offered then
		options = append(options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	case TLSNever:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		return nil, fmt.Errorf("TLS mode %q is none of offered, starttls, tls, none", m.cfg.TLS)
	}
	if m.cfg.Username != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover),
			mail.WithUsername(m.cfg.Username), mail.WithPassword(m.cfg.Password))
	}
	return mail.NewClient(m.host, options...)
}

func (m *Mailer) dialSocket(ctx context.Context, network, addr string) (net.Conn, error) {
	if m.cfg.TLS == TLSFromStart {
		dialer := tls.Dialer{Config: &tls.Config{ServerName: m.host, MinVersion: tls.VersionTLS12}}
		return dialer.DialContext(ctx, network, addr)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, addr)
}
