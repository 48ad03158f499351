package search

import (
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"orderpaid/platform/auth"
	"orderpaid/platform/httpserver"
	"orderpaid/platform/strictjson"
)

// Handler returns the service's API; guard says who is asking. A customer finds
// his own orders only.
func (s *Service) Handler(guard *auth.Guard) http.Handler {
	r := httpserver.NewRouter("search")
	r.With(guard.Customers).Get("/v1/orders/search", s.searchOrders)
	return r
}

type searchAnswer struct {
	Orders      []Document `json:"orders"`
	NextCursor  string     `json:"next_cursor,omitempty"` // absent on the last page
	IndexedAsOf *time.Time `json:"indexed_as_of"`         // null: no event has been indexed yet
}

// searchOrders serves GET /v1/orders/search?q=&user_id=&state=&cursor=&limit=.
func (s *Service) searchOrders(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	if user, limited := auth.Only(r.Context()); limited {
		if q.UserID != "" && q.UserID != user {
			httpserver.WriteError(w, r, auth.ErrNotYours)
			return
		}
		q.UserID = user
	}
	page, err := s.Search(r.Context(), q)
	if err != nil {
		httpserver.WriteError(w, r, err)
		return
	}
	answer := searchAnswer{Orders: page.Orders, IndexedAsOf: unlessZero(page.AsOf)}
	if page.Orders == nil {
		answer.Orders = []Document{} // an empty list, not null
	}
	if page.Next != (Position{}) {
		if answer.NextCursor, err = httpserver.EncodeCursor(cursorList, page.Next); err != nil {
			httpserver.WriteError(w, r, err)
			return
		}
	}
	httpserver.WriteJSON(w, http.StatusOK, answer)
}

// cursorList names the list and the order that its cursors stand for.
const cursorList = "orders.search.1"

// maxQueryLength is far more than anybody types, in characters.
const maxQueryLength = 200

var userIDPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// readQuery reads the parameters. Everything that is not understood is
// refused: a misspelt user_id that was skipped would list everybody's orders.
func readQuery(r *http.Request) (Query, error) {
	params, err := httpserver.ReadQuery(r, "q", "user_id", "state", "cursor", "limit")
	if err != nil {
		return Query{}, err
	}
	q := Query{Text: strings.TrimSpace(params.Get("q")), UserID: params.Get("user_id"), State: State(params.Get("state"))}
	switch {
	case utf8.RuneCountInString(q.Text) > maxQueryLength:
		return Query{}, badRequest("query_too_long", "q may have 200 characters")
	case q.UserID != "" && !userIDPattern.MatchString(q.UserID):
		return Query{}, badRequest("bad_user_id", "user_id has 1 to 64 letters, digits, '-' and '_'")
	case q.State != "" && q.State != StatePendingPayment && q.State != StatePaid && q.State != StateCancelled:
		return Query{}, badRequest("bad_state", "state is PENDING_PAYMENT, PAID or CANCELLED")
	}
	if q.Limit, err = httpserver.PageSize(r); err != nil {
		return Query{}, err
	}
	if cursor := params.Get("cursor"); cursor != "" {
		if err := httpserver.DecodeCursor(cursorList, cursor, &q.After); err != nil {
			return Query{}, err
		}
		if !q.After.valid() {
			return Query{}, badRequest("bad_cursor", "this is not a cursor of this list; start again without one")
		}
	}
	return q, nil
}

// valid reports whether the database can hold the position: a cursor is
// nothing that a client should make up, but it can.
func (p Position) valid() bool {
	return strictjson.Storable(p.CreatedAt) && p.OrderID != "" && len(p.OrderID) <= maxIDBytes
}

func badRequest(code, detail string) *httpserver.Error {
	return &httpserver.Error{Status: http.StatusBadRequest, Code: code, Detail: detail}
}
