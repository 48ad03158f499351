package points

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// An Entry is one line of the ledger. Once booked it never changes.
type Entry struct {
	ID       string
	OrderID  string
	UserID   string
	Kind     EntryKind
	RefundID string    // of a reversal only
	Points   int64     // never negative for an award, never positive for a reversal
	EventID  uuid.UUID // what it was booked for
	BookedAt time.Time // by the database's clock; zero until booked
}

// EntryKind says why points were booked.
type EntryKind string

// The kinds. An order has one award, and one reversal for each of its refunds.
const (
	Award    EntryKind = "award"
	Reversal EntryKind = "reversal"
)

// A Balance is what a user has, as of a moment.
type Balance struct {
	UserID string
	Points int64
	AsOf   time.Time // by the database's clock
}

// Overdrawn reports whether the user owes points.
func (b Balance) Overdrawn() bool { return b.Points < 0 }

// award returns the entry that a paid order earns. Its errors are permanent:
// the event contradicts its contract, and will again.
func award(paid OrderPaid) (Entry, error) {
	e := Entry{OrderID: paid.OrderID, UserID: paid.UserID, Kind: Award}
	switch {
	case paid.PointsDelta == nil:
		return e, bad("bad_points", "points_delta is missing")
	case *paid.PointsDelta < 0:
		return e, bad("bad_points", "points_delta of a payment is negative: %d", *paid.PointsDelta)
	}
	e.Points = *paid.PointsDelta
	return e, e.check()
}

// reverse returns the entry that takes a refund's points back. Its errors are
// permanent.
func reverse(refunded OrderRefunded) (Entry, error) {
	e := Entry{OrderID: refunded.OrderID, UserID: refunded.UserID, Kind: Reversal, RefundID: refunded.RefundID}
	switch {
	case refunded.PointsDelta == nil:
		return e, bad("bad_points", "points_delta is missing")
	case *refunded.PointsDelta > 0:
		return e, bad("bad_points", "points_delta of a refund is positive: %d", *refunded.PointsDelta)
	case refunded.RefundID == "" || len(refunded.RefundID) > maxRefundID:
		return e, bad("bad_refund_id", "refund_id must have 1 to %d bytes", maxRefundID)
	}
	e.Points = *refunded.PointsDelta
	return e, e.check()
}

// maxRefundID bounds a refund's id, which is the provider's and may look
// however he likes.
const maxRefundID = 200

// check refuses ids that the ledger could not hold or that no path could name.
func (e Entry) check() error {
	switch {
	case !isID(e.OrderID):
		return bad("bad_order_id", "order_id has not 1 to 64 letters, digits, '-' and '_'")
	case !isID(e.UserID):
		return bad("bad_user_id", "user_id has not 1 to 64 letters, digits, '-' and '_'")
	}
	return nil
}

// isID reports whether s has 1 to 64 letters, digits, '-' and '_'. It is asked
// twice for each award while a transaction is open, too often for a regular
// expression.
func isID(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return 0 < len(s) && len(s) <= 64
}

// A flaw is what is wrong with an event that cannot be booked, now or ever.
type flaw struct {
	code string // stable, for counting and searching
	text string
}

func (f *flaw) Error() string { return f.text }

func bad(code, format string, args ...any) *flaw {
	return &flaw{code, fmt.Sprintf(format, args...)}
}
