package sim

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-smtp"
)

// A mailServer accepts every mail for everybody, unless a fault says otherwise.
type mailServer struct {
	box    *mailbox
	faults *faults
	server *smtp.Server
	closed chan struct{} // closed when the server stops, which ends every hang
}

func newMailServer(box *mailbox, faults *faults) *mailServer {
	m := &mailServer{box: box, faults: faults, closed: make(chan struct{})}
	m.server = smtp.NewServer(smtp.BackendFunc(m.newSession))
	m.server.Domain = "sim.invalid"
	m.server.EnableSMTPUTF8 = true
	m.server.MaxMessageBytes = 1 << 20
	m.server.MaxRecipients = 10
	m.server.ReadTimeout = 5 * time.Minute // an idle connection is kept this long
	m.server.WriteTimeout = 10 * time.Second
	// The library reports clients that hang up; here they do so all day.
	m.server.ErrorLog = slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug)
	return m
}

// run serves until ctx is done, then hangs up on everybody: mails that were
// answered are on the disk, and for the others a dead connection is the truth.
func (m *mailServer) run(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() {
		close(m.closed)
		m.server.Close()
		listener.Close() // which Close leaves open if Serve has not begun
	})
	defer stop()
	slog.InfoContext(ctx, "accepting mail", "addr", listener.Addr().String())
	if err := m.server.Serve(listener); err != nil && !errors.Is(err, smtp.ErrServerClosed) {
		return fmt.Errorf("serve SMTP: %w", err)
	}
	return nil
}

func (m *mailServer) newSession(conn *smtp.Conn) (smtp.Session, error) {
	if fault, _, hit := m.faults.strike(atHello); hit {
		return nil, refusal(fault)
	}
	return &session{mailServer: m, conn: conn}, nil
}

// A session is one connection; go-smtp calls its methods one at a time.
type session struct {
	*mailServer
	conn *smtp.Conn
	from string
	to   []string
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if fault, _, hit := s.faults.strike(atSender); hit {
		return refusal(fault)
	}
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if fault, _, hit := s.faults.strike(atRecipient, to); hit {
		return refusal(fault)
	}
	s.to = append(s.to, to)
	return nil
}

// Data takes the whole mail. Returning nil makes the library answer 250; by
// then the mail is on the disk.
func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	received := parseMail(s.from, s.to, raw)
	fault, cleared, hit := s.faults.strike(atData, s.to...)
	if !hit {
		return s.box.add(received)
	}
	return s.misbehave(fault, cleared, received)
}

func (s *session) misbehave(fault Fault, cleared <-chan struct{}, received Mail) error {
	if fault.Kind == refuse {
		return refusal(fault)
	}
	if fault.Kind == slow {
		s.wait(fault.delay(), cleared)
		return s.box.add(received)
	}
	if fault.Keep {
		if err := s.box.add(received); err != nil {
			return err
		}
	}
	if fault.Kind == hang {
		s.wait(fault.delay(), cleared)
	}
	// What the library writes after this goes nowhere: the client sees a
	// connection that broke after its last byte, and cannot know more.
	return s.conn.Conn().Close()
}

// wait returns after d (0: never), or when the faults change or the server stops.
func (s *session) wait(d time.Duration, cleared <-chan struct{}) {
	var expired <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-expired:
	case <-cleared:
	case <-s.closed:
	}
}

func (s *session) Reset()        { s.from, s.to = "", nil }
func (s *session) Logout() error { return nil }

func refusal(f Fault) error {
	var status smtp.EnhancedCode
	for i, part := range strings.Split(f.Status, ".") {
		status[i], _ = strconv.Atoi(part) // the fault was refused if these were no three numbers
	}
	return &smtp.SMTPError{Code: f.Code, EnhancedCode: status, Message: f.Text}
}

// orderID is what the shop's order ids look like wherever a customer sees them.
var orderID = regexp.MustCompile(`ord_[0-9a-f]{32}`)

// parseMail reads what a person would see. A mail that cannot be read is kept
// as it came: a sink does not lose mail because it does not understand it.
func parseMail(from string, to []string, raw []byte) Mail {
	received := Mail{From: from, To: slices.Clone(to), Size: len(raw), ReceivedAt: time.Now().UTC(), Text: string(raw)}
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err == nil {
		received.Header = message.Header
		received.MessageID = message.Header.Get("Message-ID")
		received.Subject = decodeHeader(message.Header.Get("Subject"))
		if text, err := decodeBody(message); err == nil {
			received.Text = text
		}
	}
	found := orderID.FindAllString(received.Subject+"\n"+received.Text, -1)
	slices.Sort(found)
	received.Orders = slices.Compact(found)
	return received
}

func decodeHeader(value string) string {
	decoded, err := new(mime.WordDecoder).DecodeHeader(value)
	if err != nil {
		return value
	}
	return decoded
}

func decodeBody(message *mail.Message) (string, error) {
	body := message.Body
	switch strings.ToLower(message.Header.Get("Content-Transfer-Encoding")) {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	text, err := io.ReadAll(body)
	return strings.ReplaceAll(string(text), "\r\n", "\n"), err
}
