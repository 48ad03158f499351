package strictjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderpaid/platform/strictjson"
)

// C02: a decoder that replaces what it cannot read would alter what was said.
func TestTextThatWouldBeAlteredIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		raw    string
		want   error
		offset int64
	}{
		"invalid UTF-8":             {"{\"n\":\"a\xffb\"}", strictjson.ErrInvalidUTF8, 7},
		"UTF-8 cut short":           {"\"\xe4\xb8", strictjson.ErrInvalidUTF8, 1},
		"surrogate in UTF-8":        {"\"\xed\xa0\xbd\"", strictjson.ErrInvalidUTF8, 1},
		"overlong NUL":              {"\"\xc0\x80\"", strictjson.ErrInvalidUTF8, 1},
		"raw NUL":                   {"\"a\x00b\"", strictjson.ErrNUL, 2},
		"escaped NUL":               {`{"n":"a\u0000b"}`, strictjson.ErrNUL, 7},
		"escaped NUL after escapes": {`"\\\u0000"`, strictjson.ErrNUL, 3},
		"NUL in a name":             {`{"\u0000":1}`, strictjson.ErrNUL, 2},
		"high half at the end":      {`"\ud83d"`, strictjson.ErrLoneSurrogate, 1},
		"high half before text":     {`"\uD83Dx"`, strictjson.ErrLoneSurrogate, 1},
		"two high halves":           {`"\ud83d\ud83d\ude00"`, strictjson.ErrLoneSurrogate, 1},
		"low half alone":            {`"\ude00"`, strictjson.ErrLoneSurrogate, 1},
		"halves swapped":            {`"\ude00\ud83d"`, strictjson.ErrLoneSurrogate, 1},
		"low half after a pair":     {`"\ud83d\ude00\ude00"`, strictjson.ErrLoneSurrogate, 13},
		"escaped escape then half":  {`"\ud83d\\ude00"`, strictjson.ErrLoneSurrogate, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := strictjson.Check([]byte(tc.raw))
			if !errors.Is(err, tc.want) {
				t.Fatalf("Check = %v, want %v", err, tc.want)
			}
			if got := offsetOf(t, err); got != tc.offset {
				t.Errorf("offset = %d, want %d", got, tc.offset)
			}
		})
	}
}

func TestTextThatSurvivesIsLeftAlone(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"a\\u0000b"`:       `a\u0000b`, // the six characters, not U+0000
		`"\\\\u0000"`:       `\\u0000`,
		`"\\ud83d"`:         `\ud83d`,
		`"\ud83d\ude00"`:    "😀",
		`"\uD83D\uDE00é"`:   "😀é",
		`"手机\u0001\n\""`:    "手机\u0001\n\"",
		`"\ufffd and �"`:    "� and �", // the sender's own replacement characters
		`"\uffff\ud7ff"`:    "\uffff\ud7ff",
		`""`:                "",
		` "blanks around" `: "blanks around",
	} {
		var got string
		if err := strictjson.Decode([]byte(raw), &got); err != nil || got != want {
			t.Errorf("Decode(%s) = %q, %v; want %q", raw, got, err, want)
		}
	}
}

type money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

type audit struct {
	Source string `json:"source"`
}

type order struct {
	audit
	UserID string            `json:"user_id"`
	Items  []item            `json:"items"`
	Total  *money            `json:"total"`
	Labels map[string]string `json:"labels"`
	At     time.Time         `json:"at"`
	Raw    json.RawMessage   `json:"raw"`
	Any    any               `json:"any"`
	Quoted int64             `json:"quoted,string"`
	Hidden string            `json:"-"`
	Plain  bool
}

type item struct {
	SKU      string `json:"sku"`
	Quantity int32  `json:"quantity"`
	Price    money  `json:"price"`
}

func TestDecodeReadsEveryField(t *testing.T) {
	t.Parallel()
	raw := `{"source":"web","user_id":"u1","items":[{"sku":"a","quantity":2,"price":{"amount":995,"currency":"CNY"}}],
		"total":{"amount":1990,"currency":"CNY"},"labels":{"gift":"yes","Gift":"no"},"at":"2026-11-29T10:00:00Z",
		"raw":{"x":[1,2]},"any":[null,{"y":1.5}],"quoted":"12","Plain":true}`
	var got order
	if err := strictjson.Decode([]byte(raw), &got); err != nil {
		t.Fatal(err)
	}
	want := order{
		audit: audit{Source: "web"}, UserID: "u1",
		Items: []item{{SKU: "a", Quantity: 2, Price: money{995, "CNY"}}},
		Total: &money{1990, "CNY"}, Labels: map[string]string{"gift": "yes", "Gift": "no"},
		At: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC), Raw: json.RawMessage(`{"x":[1,2]}`),
		Any: []any{nil, map[string]any{"y": 1.5}}, Quoted: 12, Plain: true,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(order{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDecodeRefusesAndSaysWhere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		raw   string
		want  error
		field string
	}{
		"nothing":                    {``, strictjson.ErrEmpty, ""},
		"only blanks":                {" \r\n\t", strictjson.ErrEmpty, ""},
		"cut short":                  {`{"user_id":"u1"`, strictjson.ErrMalformed, ""},
		"HTML":                       {`<html></html>`, strictjson.ErrMalformed, ""},
		"byte order mark":            {"\ufeff{}", strictjson.ErrMalformed, ""},
		"trailing comma":             {`{"user_id":"u1",}`, strictjson.ErrMalformed, ""},
		"a comment":                  {`{} // fine`, strictjson.ErrMalformed, ""},
		"a second document":          {`{"user_id":"u1"} {"user_id":"u2"}`, strictjson.ErrMalformed, ""},
		"NaN":                        {`{"items":[{"quantity":NaN}]}`, strictjson.ErrMalformed, ""},
		"single quotes":              {`{'user_id':'u1'}`, strictjson.ErrMalformed, ""},
		"bad escape":                 {`{"user_id":"\u12g4"}`, strictjson.ErrMalformed, ""},
		"10001 brackets":             {strings.Repeat("[", 10001), strictjson.ErrMalformed, ""},
		"null":                       {`null`, strictjson.ErrType, ""},
		"an array":                   {`[]`, strictjson.ErrType, ""},
		"a string":                   {`"order"`, strictjson.ErrType, ""},
		"unknown field":              {`{"user":"u1"}`, strictjson.ErrUnknownField, "user"},
		"unknown field, nested":      {`{"items":[{"sku":"a"},{"price":{"cents":1}}]}`, strictjson.ErrUnknownField, "items[1].price.cents"},
		"other spelling":             {`{"User_ID":"u1"}`, strictjson.ErrUnknownField, "User_ID"},
		"hidden field":               {`{"Hidden":"x"}`, strictjson.ErrUnknownField, "Hidden"},
		"a dash":                     {`{"-":"x"}`, strictjson.ErrUnknownField, "-"},
		"very long name":             {`{"` + strings.Repeat("é", 1000) + `":1}`, strictjson.ErrUnknownField, strings.Repeat("é", 32) + "…"},
		"twice":                      {`{"total":{"amount":1,"amount":2}}`, strictjson.ErrDuplicateField, "total.amount"},
		"twice, spelt with escapes":  {`{"user_id":"u1","user\u005fid":"u2"}`, strictjson.ErrDuplicateField, "user_id"},
		"twice, in another letter":   {`{"total":{"amount":1,"Amount":2}}`, strictjson.ErrUnknownField, "total.Amount"},
		"twice, in a map":            {`{"labels":{"a":"1","a":"1"}}`, strictjson.ErrDuplicateField, "labels.a"},
		"twice, where anything goes": {`{"any":[{"a":{"b":1,"b":1}}]}`, strictjson.ErrDuplicateField, "any[0].a.b"},
		"twice, in a raw message":    {`{"raw":{"b":1,"b":1}}`, strictjson.ErrDuplicateField, "raw.b"},
		"a float for money":          {`{"total":{"amount":19.99}}`, strictjson.ErrType, "total.amount"},
		"an exponent for money":      {`{"total":{"amount":1.999e3}}`, strictjson.ErrType, "total.amount"},
		"a string for money":         {`{"total":{"amount":"1999"}}`, strictjson.ErrType, "total.amount"},
		"beyond int64":               {`{"total":{"amount":9223372036854775808}}`, strictjson.ErrType, "total.amount"},
		"beyond int32":               {`{"items":[{"quantity":2147483648}]}`, strictjson.ErrType, "items[0].quantity"},
		"beyond float64":             {`{"any":1e999}`, strictjson.ErrType, "any"},
		"null for money":             {`{"total":{"amount":null}}`, strictjson.ErrType, "total.amount"},
		"null for a struct":          {`{"items":[null]}`, strictjson.ErrType, "items[0]"},
		"null for a time":            {`{"at":null}`, strictjson.ErrType, "at"},
		"an object for a string":     {`{"user_id":{}}`, strictjson.ErrType, "user_id"},
		"an array for an object":     {`{"total":[]}`, strictjson.ErrType, "total"},
		"an object for an array":     {`{"items":{}}`, strictjson.ErrType, "items"},
		"a number for a bool":        {`{"Plain":1}`, strictjson.ErrType, "Plain"},
		"not a time":                 {`{"at":"yesterday"}`, strictjson.ErrType, "at"},
		"too deep":                   {`{"any":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`, strictjson.ErrTooDeep, "any" + strings.Repeat("[0]", 64)},
		"lone surrogate":             {`{"user_id":"\ud83d"}`, strictjson.ErrLoneSurrogate, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := order{UserID: "before"}
			err := strictjson.Decode([]byte(tc.raw), &got)
			if !errors.Is(err, tc.want) {
				t.Fatalf("Decode = %v, want %v", err, tc.want)
			}
			var e *strictjson.Error
			if !errors.As(err, &e) || e.Field != tc.field {
				t.Errorf("field = %q, want %q", e.Field, tc.field)
			}
			if diff := cmp.Diff(order{UserID: "before"}, got, cmp.AllowUnexported(order{})); diff != "" {
				t.Errorf("the target was changed (-want +got)\n%s", diff)
			}
		})
	}
}

func TestNullIsAllowedWhereSomethingCanBeNil(t *testing.T) {
	t.Parallel()
	got := order{Total: &money{}, Items: []item{{}}}
	err := strictjson.Decode([]byte(`{"total":null,"items":null,"labels":null,"raw":null,"any":null}`), &got)
	if err != nil || got.Total != nil || got.Items != nil {
		t.Errorf("Decode = %+v, %v; want nothing in it and no error", got, err)
	}
}

func TestErrorNamesFieldAndPositionAndNoValue(t *testing.T) {
	t.Parallel()
	err := strictjson.Decode([]byte(`{"user_id":"mei@example.org","items":[{"sku":"secret-sku","quantity":"many"}]}`), new(order))
	got := err.Error()
	want := `field "items[0].quantity": value has the wrong type or does not fit, at byte 68`
	if got != want {
		t.Errorf("error = %s, want %s", got, want)
	}
}

func TestMalformedDocumentSaysWhereItBreaks(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int64{
		`x`:        0,
		`{"a":tru`: 7,
		`{"a":1,}`: 7,
		`{} {}`:    3,
	} {
		if got := offsetOf(t, strictjson.Decode([]byte(raw), new(any))); got != want {
			t.Errorf("Decode(%s) breaks at %d, want %d", raw, got, want)
		}
	}
}

func offsetOf(t *testing.T, err error) int64 {
	t.Helper()
	var e *strictjson.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v (%T) is not a *strictjson.Error", err, err)
	}
	return e.Offset
}
