package notify

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/postgres"
)

// A Service knows where customers want their mail and tells what has become of
// it. What is to be sent it learns from events (consume.go); the sending is
// the business of [Delivery].
type Service struct {
	pool *pgxpool.Pool
	wake func() // tells the sender that there may be something to send; must not block
}

// NewService returns the service on a migrated database. wake is called after
// commits that have queued mail, and may be lost: the sender looks by itself.
func NewService(pool *pgxpool.Pool, wake func()) *Service {
	return &Service{pool: pool, wake: wake}
}

var errNoContact = errors.New("no contact is known")

// PutContact writes down where the user wants mail, and queues what failed
// because that was not known, or was another address that the server refused:
// somebody has corrected it. It returns how many mails that were.
func (s *Service) PutContact(ctx context.Context, c Contact) (revived int64, err error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := lockUser(ctx, tx, c.UserID); err != nil {
			return err
		}
		before, err := readContact(ctx, tx, c.UserID)
		if err != nil && !errors.Is(err, errNoContact) {
			return err
		}
		if err := putContact(ctx, tx, c); err != nil {
			return err
		}
		if revived, err = revive(ctx, tx, c.UserID, before.Email != c.Email); err != nil {
			return err
		}
		afterCommit(tx, s.wake)
		return nil
	})
	return revived, err
}

// Contact returns what was written down last, or errNoContact.
func (s *Service) Contact(ctx context.Context, userID string) (Contact, error) {
	return readContact(ctx, s.pool, userID)
}

// Notifications returns a page of the user's mails, newest first, that are
// older than the one named before (the newest page, if that is empty), and the
// one before which the next page starts, or "" on the last page.
func (s *Service) Notifications(ctx context.Context, userID, before string, limit int) (page []Task, next string, err error) {
	if before == "" {
		before = behindAll
	}
	page, err = readNotifications(ctx, s.pool, userID, before, limit+1) // one more tells whether this page is the last
	if err != nil || len(page) <= limit {
		return page, "", err
	}
	return page[:limit], page[limit-1].ID, nil
}
