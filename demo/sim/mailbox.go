package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// A Mail is one accepted message, as the sink keeps it.
type Mail struct {
	MessageID  string              `json:"message_id"`
	From       string              `json:"from"` // of the SMTP envelope, like To
	To         []string            `json:"to"`
	Subject    string              `json:"subject"` // decoded
	Orders     []string            `json:"orders"`  // order ids found in subject and text
	Text       string              `json:"text"`    // decoded
	Header     map[string][]string `json:"header"`
	Size       int                 `json:"size"` // bytes received
	ReceivedAt time.Time           `json:"received_at"`
}

// A Query selects mails. Empty fields select everything.
type Query struct {
	To        string
	Order     string
	MessageID string
	Offset    int // mails to pass over, oldest first
	Limit     int // mails to return at most
}

// Totals say how many mails there are and how many are copies of another.
type Totals struct {
	Mails      int `json:"mails"`
	MessageIDs int `json:"message_ids"`
	Copies     int `json:"copies"`  // mails whose Message-ID had been seen before
	Dropped    int `json:"dropped"` // mails no longer in the index; the file has them
}

// A mailbox keeps mails in a file, one JSON document a line, and in memory
// only what it needs to find them: about 300 bytes each, for the newest keep.
type mailbox struct {
	keep int

	mu      sync.RWMutex // guards everything below, and the end of the file
	file    *os.File
	size    int64
	index   []indexed
	copies  map[string]int // mails in the index by Message-ID
	dropped int

	syncMu sync.Mutex // held while the file is flushed; taken after mu was given back
	synced int64      // how much of the file is on the disk
}

// indexed is what is remembered of a mail: where it is, and what it is asked by.
type indexed struct {
	offset    int64
	length    int
	messageID string
	to        []string
	orders    []string
}

// openMailbox opens the file and reads what earlier runs have left. An empty
// path means a file without a name that vanishes when it is closed.
func openMailbox(path string, keep int) (*mailbox, error) {
	file, err := openMailFile(path)
	if err != nil {
		return nil, err
	}
	m := &mailbox{keep: keep, file: file, copies: map[string]int{}}
	if err := m.load(); err != nil {
		file.Close()
		return nil, fmt.Errorf("read mails from %s: %w", file.Name(), err)
	}
	return m, nil
}

func openMailFile(path string) (*os.File, error) {
	if path != "" {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	file, err := os.CreateTemp("", "mails-*.jsonl")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil { // the open file keeps working
		file.Close()
		return nil, err
	}
	return file, nil
}

// load indexes the lines of the file. What follows the last line break is a
// mail that was being written when the process died: it was never answered
// with 250, so it is cut off.
func (m *mailbox) load() error {
	lines := bufio.NewReader(m.file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			m.synced = m.size
			return m.file.Truncate(m.size)
		}
		if err != nil {
			return err
		}
		var mail Mail
		if err := json.Unmarshal(line, &mail); err != nil {
			return fmt.Errorf("byte %d: %w", m.size, err)
		}
		m.remember(mail, len(line))
	}
}

// add keeps the mail. When it returns nil the mail is on the disk.
func (m *mailbox) add(mail Mail) error {
	line, err := json.Marshal(mail)
	if err != nil {
		return fmt.Errorf("encode mail: %w", err)
	}
	line = append(line, '\n')

	m.mu.Lock()
	if _, err := m.file.WriteAt(line, m.size); err != nil {
		err = errors.Join(err, m.file.Truncate(m.size)) // half a line must not stay
		m.mu.Unlock()
		return fmt.Errorf("write mail: %w", err)
	}
	m.remember(mail, len(line))
	end := m.size
	m.mu.Unlock()
	return m.flush(end)
}

// flush returns when the first end bytes of the file are on the disk. Mails
// that arrive while another flush runs share the next one.
func (m *mailbox) flush(end int64) error {
	m.syncMu.Lock()
	defer m.syncMu.Unlock()
	if m.synced >= end {
		return nil
	}
	m.mu.RLock()
	size := m.size
	m.mu.RUnlock()
	if err := m.file.Sync(); err != nil {
		return fmt.Errorf("flush mails: %w", err)
	}
	m.synced = size
	return nil
}

// remember puts the mail, whose line ends the file, into the index.
func (m *mailbox) remember(mail Mail, length int) {
	if len(m.index) == m.keep {
		m.forget(m.index[0].messageID)
		m.index = m.index[1:]
		m.dropped++
	}
	m.index = append(m.index, indexed{m.size, length, mail.MessageID, mail.To, mail.Orders})
	m.copies[mail.MessageID]++
	m.size += int64(length)
}

func (m *mailbox) forget(messageID string) {
	if m.copies[messageID]--; m.copies[messageID] == 0 {
		delete(m.copies, messageID)
	}
}

// find returns the mails that the query selects, oldest first.
func (m *mailbox) find(q Query) ([]Mail, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	mails := []Mail{}
	for _, at := range m.index {
		if len(mails) == q.Limit {
			break
		}
		if !at.matches(q) {
			continue
		}
		if q.Offset > 0 {
			q.Offset--
			continue
		}
		mail, err := m.read(at)
		if err != nil {
			return nil, err
		}
		mails = append(mails, mail)
	}
	return mails, nil
}

func (at indexed) matches(q Query) bool {
	return (q.To == "" || slices.Contains(at.to, q.To)) &&
		(q.Order == "" || slices.Contains(at.orders, q.Order)) &&
		(q.MessageID == "" || at.messageID == q.MessageID)
}

func (m *mailbox) read(at indexed) (Mail, error) {
	line := make([]byte, at.length)
	if _, err := m.file.ReadAt(line, at.offset); err != nil {
		return Mail{}, fmt.Errorf("read mail at byte %d: %w", at.offset, err)
	}
	var mail Mail
	if err := json.Unmarshal(line, &mail); err != nil {
		return Mail{}, fmt.Errorf("decode mail at byte %d: %w", at.offset, err)
	}
	return mail, nil
}

func (m *mailbox) totals() Totals {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return Totals{
		Mails: len(m.index), MessageIDs: len(m.copies),
		Copies: len(m.index) - len(m.copies), Dropped: m.dropped,
	}
}

// clear forgets all mails, in the file too.
func (m *mailbox) clear() error {
	m.syncMu.Lock()
	defer m.syncMu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.file.Truncate(0); err != nil {
		return fmt.Errorf("delete mails: %w", err)
	}
	m.size, m.synced, m.dropped = 0, 0, 0
	m.index, m.copies = nil, map[string]int{}
	return nil
}

// close has nothing to report: every mail that was answered is on the disk.
func (m *mailbox) close() { m.file.Close() }
