package httpserver

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"orderpaid/platform/strictjson"
)

// Limits of a page of a list.
const (
	DefaultPageSize = 20
	MaxPageSize     = 100
)

// PageSize returns how many entries the client asks for with ?limit=, from 1
// to [MaxPageSize]; [DefaultPageSize] if it does not ask. Anything else is an
// [*Error] with code bad_limit, never a silent correction.
func PageSize(r *http.Request) (int, error) {
	given := r.URL.Query().Get("limit")
	if given == "" {
		return DefaultPageSize, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 || n > MaxPageSize {
		return 0, &Error{http.StatusBadRequest, "bad_limit", "limit must be a whole number from 1 to " + strconv.Itoa(MaxPageSize)}
	}
	return n, nil
}

// ReadQuery returns the parameters of a request's query, each of which must be
// one of names, stand once and be text that PostgreSQL can hold. Everything else
// is an [*Error] with status 400: net/url drops a pair that it cannot read
// without a word, and a filter that is skipped lists what it was to hide.
func ReadQuery(r *http.Request, names ...string) (url.Values, error) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &Error{http.StatusBadRequest, "bad_query_string", "the query string is not properly escaped"}
	}
	for name, values := range params {
		switch {
		case !slices.Contains(names, name):
			return nil, &Error{http.StatusBadRequest, "unknown_parameter", "the parameters are " + strings.Join(names, ", ")}
		case len(values) > 1:
			return nil, &Error{http.StatusBadRequest, "repeated_parameter", "each parameter may be given once"}
		case !IsText(values[0]):
			return nil, &Error{http.StatusBadRequest, "bad_text", name + " must be UTF-8 text without U+0000"}
		}
	}
	return params, nil
}

// IsText reports whether PostgreSQL can hold a text: UTF-8 without U+0000.
func IsText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// ReadPage reads the query of a list that has no parameters but limit and
// cursor. Without a cursor it leaves key, a pointer, as it is: that is the first
// page. Errors are those of [ReadQuery], [PageSize] and [DecodeCursor].
func ReadPage(r *http.Request, list string, key any) (limit int, err error) {
	params, err := ReadQuery(r, "limit", "cursor")
	if err != nil {
		return 0, err
	}
	if limit, err = PageSize(r); err != nil {
		return 0, err
	}
	if given := params.Get("cursor"); given != "" {
		err = DecodeCursor(list, given, key)
	}
	return limit, err
}

// cursor is what a client gets to carry: where the next page starts.
type cursor struct {
	List string          `json:"l"`
	Key  json.RawMessage `json:"k"`
}

// EncodeCursor returns the cursor that stands for key, the sort key of the
// last entry of a page. list names the list and the version of its order, for
// example "points.entries.1": change it when key changes, and old cursors are
// refused instead of misread.
//
// Cursors are opaque to clients by agreement and not by secrecy: put into key
// only what the client may see, and check whose list it is at each request.
func EncodeCursor(list string, key any) (string, error) {
	k, err := json.Marshal(key)
	if err != nil {
		return "", err
	}
	document, err := json.Marshal(cursor{List: list, Key: k})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(document), nil
}

// DecodeCursor reads a cursor of the same list into key, a pointer. Everything
// else is an [*Error] with code bad_cursor. Callers treat an absent cursor
// (the first page) before they call it.
func DecodeCursor(list, given string, key any) error {
	bad := &Error{http.StatusBadRequest, "bad_cursor", "this is not a cursor of this list; start again without one"}
	document, err := base64.RawURLEncoding.DecodeString(given)
	if err != nil {
		return bad
	}
	var c cursor
	if err := strictjson.Decode(document, &c); err != nil || c.List != list {
		return bad
	}
	if err := strictjson.Decode(c.Key, key); err != nil {
		return bad
	}
	return nil
}
