package points

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"orderpaid/platform/auth"
	"orderpaid/platform/httpserver"
)

// Handler returns the service's API; guard says who is asking. A customer sees
// his own points only.
func (s *Service) Handler(guard *auth.Guard) http.Handler {
	router := httpserver.NewRouter("points")
	r := router.With(guard.Customers, auth.Own("id"))
	r.Get("/v1/users/{id}/points", s.getBalance)
	r.Get("/v1/users/{id}/points/entries", s.listEntries)
	return router
}

type balanceView struct {
	UserID    string    `json:"user_id"`
	Balance   int64     `json:"balance"`
	Overdrawn bool      `json:"overdrawn"` // the balance is a debt
	AsOf      time.Time `json:"as_of"`
}

// getBalance serves GET /v1/users/{id}/points.
func (s *Service) getBalance(w http.ResponseWriter, r *http.Request) {
	userID, err := userOf(r)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	b, err := s.Balance(r.Context(), userID)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, balanceView{b.UserID, b.Points, b.Overdrawn(), b.AsOf})
}

type entriesView struct {
	Entries    []entryView `json:"entries"`
	NextCursor string      `json:"next_cursor,omitempty"` // absent on the last page
}

type entryView struct {
	EntryID  string    `json:"entry_id"`
	OrderID  string    `json:"order_id"`
	Kind     EntryKind `json:"kind"`
	RefundID string    `json:"refund_id,omitempty"`
	Points   int64     `json:"points"`
	BookedAt time.Time `json:"booked_at"`
}

// cursorList names the list and the order that its cursors stand for.
const cursorList = "points.entries.1"

// listEntries serves GET /v1/users/{id}/points/entries?cursor=&limit=.
func (s *Service) listEntries(w http.ResponseWriter, r *http.Request) {
	view, err := s.entriesPage(r)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	httpserver.WriteJSON(w, http.StatusOK, view)
}

func (s *Service) entriesPage(r *http.Request) (entriesView, error) {
	userID, err := userOf(r)
	if err != nil {
		return entriesView{}, err
	}
	var before string
	limit, err := httpserver.ReadPage(r, cursorList, &before)
	if err != nil {
		return entriesView{}, err
	}
	entries, next, err := s.Entries(r.Context(), userID, before, limit)
	if err != nil {
		return entriesView{}, err
	}
	view := entriesView{Entries: make([]entryView, len(entries))}
	for i, e := range entries {
		view.Entries[i] = entryView{e.ID, e.OrderID, e.Kind, e.RefundID, e.Points, e.BookedAt}
	}
	if next != "" {
		view.NextCursor, err = httpserver.EncodeCursor(cursorList, next)
	}
	return view, err
}

func userOf(r *http.Request) (string, error) {
	id := chi.URLParam(r, "id")
	if !isID(id) {
		return "", &httpserver.Error{Status: http.StatusBadRequest, Code: "bad_user_id", Detail: "a user id has 1 to 64 letters, digits, '-' and '_'"}
	}
	return id, nil
}
