package notify

import (
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/auth"
	"orderpaid/platform/httpserver"
)

// Handler returns the service's API; guard says who is asking. A customer sees
// his own contact and mails only.
func (s *Service) Handler(guard *auth.Guard) http.Handler {
	router := httpserver.NewRouter("notify")
	r := router.With(guard.Customers, auth.Own("id"))
	r.Put("/v1/users/{id}/contact", s.putContact)
	r.Get("/v1/users/{id}/contact", s.getContact)
	r.Get("/v1/users/{id}/notifications", s.listNotifications)
	return router
}

// contactView shows an address masked, even to who has just sent it: answers
// end up in logs and screenshots.
type contactView struct {
	UserID string `json:"user_id"`
	Email  string `json:"email"`
	Locale Locale `json:"locale"`
}

// putContact serves PUT /v1/users/{id}/contact.
func (s *Service) putContact(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Email  string `json:"email"`
		Locale Locale `json:"locale"`
	}
	userID, err := userOf(r)
	if err == nil {
		err = httpserver.ReadJSON(w, r, &body)
	}
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	c := Contact{UserID: userID, Email: body.Email, Locale: body.Locale}
	revived, err := s.PutContact(r.Context(), c)
	if err != nil {
		httpserver.WriteError(w, r, answerTo(err))
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, struct {
		contactView
		Revived int64 `json:"revived"` // mails that had failed for want of an address, or of the right one, and are sent now
	}{contactView{c.UserID, c.Masked(), c.Locale}, revived})
}

// getContact serves GET /v1/users/{id}/contact.
func (s *Service) getContact(w http.ResponseWriter, r *http.Request) {
	userID, err := userOf(r)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	c, err := s.Contact(r.Context(), userID)
	if err != nil {
		httpserver.WriteError(w, r, answerTo(err))
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, contactView{c.UserID, c.Masked(), c.Locale})
}

type notificationsView struct {
	Notifications []notificationView `json:"notifications"`
	NextCursor    string             `json:"next_cursor,omitempty"` // absent on the last page
}

type notificationView struct {
	NotificationID string     `json:"notification_id"`
	OrderID        string     `json:"order_id"`
	Channel        string     `json:"channel"`
	Template       Template   `json:"template"`
	State          State      `json:"state"`
	Code           string     `json:"code,omitempty"`  // why it is not sent
	Reply          string     `json:"reply,omitempty"` // the mail server's status then
	Attempts       int        `json:"attempts"`        // that the server put off
	Unknowns       int        `json:"unknowns"`        // that ended without an answer
	NextAttemptAt  *time.Time `json:"next_attempt_at,omitempty"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
}

func newNotificationView(t Task) notificationView {
	v := notificationView{
		NotificationID: t.ID, OrderID: t.OrderID, Channel: Channel, Template: t.Template,
		State: t.State, Code: t.Code, Reply: t.Reply, Attempts: t.Attempts, Unknowns: t.Unknowns,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
	}
	if t.State == Queued {
		v.NextAttemptAt = &t.DueAt
	}
	return v
}

// cursorList names the list and the order that its cursors stand for.
const cursorList = "notifications.1"

// listNotifications serves GET /v1/users/{id}/notifications?cursor=&limit=.
func (s *Service) listNotifications(w http.ResponseWriter, r *http.Request) {
	view, err := s.notificationsPage(r)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, view)
}

func (s *Service) notificationsPage(r *http.Request) (notificationsView, error) {
	userID, err := userOf(r)
	if err != nil {
		return notificationsView{}, err
	}
	var before string
	limit, err := httpserver.ReadPage(r, cursorList, &before)
	if err != nil {
		return notificationsView{}, err
	}
	tasks, next, err := s.Notifications(r.Context(), userID, before, limit)
	if err != nil {
		return notificationsView{}, err
	}
	view := notificationsView{Notifications: make([]notificationView, len(tasks))}
	for i, t := range tasks {
		view.Notifications[i] = newNotificationView(t)
	}
	if next != "" {
		view.NextCursor, err = httpserver.EncodeCursor(cursorList, next)
	}
	return view, err
}

func userOf(r *http.Request) (string, error) {
	id := chi.URLParam(r, "id")
	if !idPattern.MatchString(id) {
		return "", &httpserver.Error{Status: http.StatusBadRequest, Code: "bad_user_id", Detail: "a user id has 1 to 64 letters, digits, '-' and '_'"}
	}
	return id, nil
}

// answerTo turns the domain's errors into answers.
func answerTo(err error) error {
	var f *flaw
	switch {
	case errors.As(err, &f):
		return &httpserver.Error{Status: http.StatusUnprocessableEntity, Code: f.code, Detail: f.text}
	case errors.Is(err, errNoContact):
		return &httpserver.Error{Status: http.StatusNotFound, Code: "contact_not_found", Detail: "no contact is known for this user"}
	}
	return err
}
