package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// What an answer meant to the client.
const (
	Accepted = "accepted" // 2xx: the shop took responsibility
	Refused  = "refused"  // the shop said no: 4xx, or a callback that it keeps for a person to look at
	Unknown  = "unknown"  // no answer, or 5xx: it may have happened; asked again under the same key
)

// What the client asked for.
const (
	OpCreate = "create"
	OpCancel = "cancel"
	OpPay    = "pay"    // the payment provider's callback payment.succeeded
	OpRefund = "refund" // the payment provider's callback payment.refunded
)

// An Entry is one answer that the client got. It says everything that the
// check needs: nothing is taken from the memory of the process that wrote it.
type Entry struct {
	At      time.Time `json:"at"`
	Order   int       `json:"order"` // the client's own number for it
	Op      string    `json:"op"`
	Key     string    `json:"key"`     // the Idempotency-Key or the webhook id: the same in every repetition
	Outcome string    `json:"outcome"` // Accepted, Refused or Unknown
	Status  int       `json:"status,omitempty"`
	Code    string    `json:"code,omitempty"` // of the problem, if one came back

	OrderID   string `json:"order_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
	PaymentID string `json:"payment_id,omitempty"`
	RefundID  string `json:"refund_id,omitempty"`
	Amount    int64  `json:"amount,omitempty"` // minor units: the order's total, the payment, the refund
	Currency  string `json:"currency,omitempty"`
}

// A Journal is an append-only file of answers. It outlives a crash of the
// client: an entry is on the disk before Append returns.
type Journal struct {
	path  string
	file  *os.File
	queue chan pendingEntry
	done  chan struct{}

	closing sync.Once
}

type pendingEntry struct {
	line    []byte
	written chan error
}

// journalBatch bounds how many entries share one fsync.
const journalBatch = 256

// CreateJournal makes a new journal file. It refuses to continue an old one:
// each load has its own.
func CreateJournal(path string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	// Unbuffered: an entry waits with its writer until the batch before it is
	// on the disk, and whatever gathered meanwhile is the next batch.
	j := &Journal{path: path, file: file, queue: make(chan pendingEntry), done: make(chan struct{})}
	go j.write()
	return j, nil
}

// Path returns where the journal lies.
func (j *Journal) Path() string { return j.path }

// Append returns when the entry is on the disk. Safe for concurrent use; must
// not be called after Close.
func (j *Journal) Append(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal %s of order %d: %w", e.Op, e.Order, err)
	}
	p := pendingEntry{line: append(line, '\n'), written: make(chan error, 1)}
	j.queue <- p
	if err := <-p.written; err != nil {
		return fmt.Errorf("journal %s of order %d: %w", e.Op, e.Order, err)
	}
	return nil
}

// Close returns when everything is written and the file is closed.
func (j *Journal) Close() error {
	j.closing.Do(func() { close(j.queue) })
	<-j.done
	return j.file.Close()
}

func (j *Journal) write() {
	defer close(j.done)
	for first := range j.queue {
		batch := []pendingEntry{first}
		lines := first.line
		for more := true; more && len(batch) < journalBatch; {
			select {
			case p, open := <-j.queue:
				if more = open; open {
					batch = append(batch, p)
					lines = append(lines, p.line...)
				}
			default:
				more = false
			}
		}
		_, err := j.file.Write(lines)
		if err == nil {
			err = j.file.Sync()
		}
		for _, p := range batch {
			p.written <- err
		}
	}
}

// ReadJournal returns the entries of a journal in the order they were written.
// A last line that a crash cut short is not an entry: its answer was never
// acted upon.
func ReadJournal(path string) ([]Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	defer file.Close()
	var entries []Entry
	in := bufio.NewReader(file)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, fmt.Errorf("journal %s: %w", path, err)
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("journal %s line %d: %w", path, n, err)
		}
		entries = append(entries, e)
	}
}
