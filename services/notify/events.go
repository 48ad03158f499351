package notify

import (
	"time"

	"orderpaid/platform/messaging"
)

// OrderPaid is what this service reads: of the event's data only the fields
// that it uses. Numbers are pointers, because a missing amount must not become
// a mail about nothing.
type OrderPaid struct {
	OrderID string     `json:"order_id"`
	UserID  string     `json:"user_id"`
	Total   eventMoney `json:"total"`
	PaidAt  time.Time  `json:"paid_at"`
}

type eventMoney struct {
	Amount   *int64 `json:"amount"`
	Currency string `json:"currency"`
	Exponent *int   `json:"exponent"`
}

// Kind names the event.
func (OrderPaid) Kind() messaging.Kind {
	return messaging.Kind{Context: "order", Type: "OrderPaid", Version: 1, Aggregate: "order"}
}

// What this service states. The aggregate is the notification; its version
// counts what was stated about it.

// NotificationSent: the mail server has accepted the mail.
type NotificationSent struct {
	NotificationID string    `json:"notification_id"`
	OrderID        string    `json:"order_id"`
	UserID         string    `json:"user_id"`
	Channel        string    `json:"channel"`
	Template       Template  `json:"template"`
	MessageID      string    `json:"message_id"`
	SentAt         time.Time `json:"sent_at"`
}

// NotificationFailed: the mail was given up, or nobody knows where it is.
type NotificationFailed struct {
	NotificationID string    `json:"notification_id"`
	OrderID        string    `json:"order_id"`
	UserID         string    `json:"user_id"`
	Channel        string    `json:"channel"`
	Template       Template  `json:"template"`
	Code           string    `json:"code"`
	FailedAt       time.Time `json:"failed_at"`
}

// Kind names the event.
func (NotificationSent) Kind() messaging.Kind { return notificationKind("NotificationSent") }

// Kind names the event.
func (NotificationFailed) Kind() messaging.Kind { return notificationKind("NotificationFailed") }

func notificationKind(name string) messaging.Kind {
	return messaging.Kind{Context: "notify", Type: name, Version: 1, Aggregate: "notification"}
}
