package httpserver

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestPageSizeIsAskedForOrRefused(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int{
		"": 20, "?limit=": 20, "?limit=1": 1, "?limit=100": 100,
		"?limit=0": 0, "?limit=101": 0, "?limit=-1": 0, "?limit=ten": 0, "?limit=1.5": 0, "?limit=99999999999999999999": 0,
	} {
		got, err := PageSize(httptest.NewRequest(http.MethodGet, "/entries"+query, nil))
		if got != want || (want == 0) != (codeOfError(err) == "bad_limit") {
			t.Errorf("PageSize(%q) = %d, %v; want %d", query, got, err, want)
		}
	}
}

type position struct {
	At time.Time `json:"at"`
	ID string    `json:"id"`
}

func TestCursorComesBackAsItWas(t *testing.T) {
	t.Parallel()
	want := position{time.Date(2026, 11, 29, 10, 0, 0, 123456000, time.UTC), "e/1?&+ü"}
	given, err := EncodeCursor("points.entries.1", want)
	if err != nil {
		t.Fatal(err)
	}
	if escaped := httptest.NewRequest(http.MethodGet, "/?cursor="+given, nil).URL.Query().Get("cursor"); escaped != given {
		t.Errorf("cursor %q does not survive a query string: %q", given, escaped)
	}
	var got position
	if err := DecodeCursor("points.entries.1", given, &got); err != nil || got != want {
		t.Errorf("DecodeCursor = %+v, %v; want %+v", got, err, want)
	}
}

func TestForeignCursorIsRefused(t *testing.T) {
	t.Parallel()
	encode := func(document string) string { return base64.RawURLEncoding.EncodeToString([]byte(document)) }
	other, err := EncodeCursor("orders.1", position{ID: "o1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, given := range map[string]string{
		"empty":           "",
		"not base64":      "%%%",
		"not JSON":        encode("points"),
		"no key":          encode(`{"l":"points.entries.1"}`),
		"another list":    other,
		"an older list":   encode(`{"l":"points.entries.0","k":{"id":"e1"}}`),
		"a strange key":   encode(`{"l":"points.entries.1","k":{"offset":5}}`),
		"a key of a type": encode(`{"l":"points.entries.1","k":{"id":5}}`),
		"a NUL":           encode(`{"l":"points.entries.1","k":{"id":"\u0000"}}`),
		"two keys":        encode(`{"l":"points.entries.1","k":{"id":"a"},"k":{"id":"b"}}`),
	} {
		var got position
		if err := DecodeCursor("points.entries.1", given, &got); codeOfError(err) != "bad_cursor" || got != (position{}) {
			t.Errorf("%s: DecodeCursor = %+v, %v; want bad_cursor", name, got, err)
		}
	}
}

func codeOfError(err error) string {
	var e *Error
	if !errors.As(err, &e) || e.Status != 400 {
		return ""
	}
	return e.Code
}

func TestAQueryThatIsNotUnderstoodIsRefusedAndNotSkipped(t *testing.T) {
	t.Parallel()
	const list = "points.entries.1"
	cursor, err := EncodeCursor(list, "e1")
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"": "", "limit=5": "", "cursor=" + cursor: "", "limit=5&cursor=" + cursor: "",
		"limit=5;x=1":     "bad_query_string",
		"limit=%zz":       "bad_query_string",
		"limit=5&x=1":     "unknown_parameter",
		"Limit=5":         "unknown_parameter",
		"limit=5&limit=6": "repeated_parameter",
		"cursor=%00":      "bad_text",
		"cursor=%ff":      "bad_text",
		"limit=%00":       "bad_text",
		"limit=0":         "bad_limit",
		"cursor=x":        "bad_cursor",
	} {
		var key string
		_, err := ReadPage(httptest.NewRequest(http.MethodGet, "/entries?"+query, nil), list, &key)
		if got := codeOfError(err); got != want {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
}
