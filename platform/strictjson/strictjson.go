// Package strictjson reads JSON from people and machines that are not trusted.
//
// encoding/json is forgiving where a system that handles money must not be:
//
//   - It turns invalid UTF-8 and lone surrogates into U+FFFD without a word,
//     and PostgreSQL refuses U+0000 in text and jsonb. [Check] finds all of
//     these before anything is stored, so that what is kept is exactly what
//     was sent, or an error.
//   - It takes the last of two equal names, and "Amount" for "amount". Other
//     readers of the same bytes (a proxy, a log, an auditor) take the first,
//     or see no amount at all. [Decode] refuses both: two readers must never
//     see two amounts.
//   - It leaves a number at zero where the document says null. [Decode]
//     refuses null for everything that cannot hold it.
//
// Errors name the field and the position, never a value: they go to logs and
// to clients, and values are personal.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// The reasons for which [Check] and [Decode] refuse a document. Callers branch
// on them with errors.Is, to answer with a code that says which.
var (
	ErrInvalidUTF8   = errors.New("text is not valid UTF-8")
	ErrLoneSurrogate = errors.New("text holds half of a surrogate pair")
	ErrNUL           = errors.New("text holds U+0000, which PostgreSQL cannot store")

	ErrEmpty          = errors.New("the document is empty")
	ErrMalformed      = errors.New("not one well-formed JSON document")
	ErrUnknownField   = errors.New("unknown field")
	ErrDuplicateField = errors.New("field appears twice in one object")
	ErrType           = errors.New("value has the wrong type or does not fit")
	ErrTooDeep        = errors.New("nested too deeply")
)

// An Error says why a document was refused, and where.
type Error struct {
	Reason error  // one of the Err values of this package
	Field  string // for example items[2].quantity; empty if the reason is not about one field
	Offset int64  // so many bytes of the document are in front of the place
}

func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%v, at byte %d", e.Reason, e.Offset)
	}
	return fmt.Sprintf("field %q: %v, at byte %d", e.Field, e.Reason, e.Offset)
}

func (e *Error) Unwrap() error { return e.Reason }

// Check reports whether raw can pass through Go and PostgreSQL without any of
// its characters being altered. The error is an [*Error]. Check does not ask
// whether raw is well-formed JSON; decoding does.
//
// The six literal characters of an escaped backslash followed by u0000 are
// ordinary text and are left alone.
func Check(raw []byte) error {
	if !utf8.Valid(raw) {
		return &Error{Reason: ErrInvalidUTF8, Offset: int64(validPrefix(raw))}
	}
	if i := bytes.IndexByte(raw, 0); i >= 0 {
		return &Error{Reason: ErrNUL, Offset: int64(i)}
	}
	for i := 0; ; {
		backslash := bytes.IndexByte(raw[i:], '\\')
		if backslash < 0 {
			return nil
		}
		i += backslash
		n, err := checkEscape(raw[i:])
		if err != nil {
			return &Error{Reason: err, Offset: int64(i)}
		}
		i += n
	}
}

// checkEscape looks at the escape sequence that b starts with, and returns how
// many bytes of b it takes up. A malformed one takes up its backslash and what
// follows it: the decoder reports it, with its position.
func checkEscape(b []byte) (n int, err error) {
	unit, ok := unicodeEscape(b)
	switch {
	case !ok:
		return min(2, len(b)), nil
	case unit == 0:
		return 0, ErrNUL
	case unit < 0xD800 || unit > 0xDFFF:
		return 6, nil
	case unit > 0xDBFF: // a low half with no high half in front of it
		return 0, ErrLoneSurrogate
	}
	low, ok := unicodeEscape(b[6:])
	if !ok || low < 0xDC00 || low > 0xDFFF {
		return 0, ErrLoneSurrogate
	}
	return 12, nil
}

// unicodeEscape reads the UTF-16 code unit of a \uXXXX at the start of b.
func unicodeEscape(b []byte) (unit uint16, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		unit <<= 4
		switch {
		case c >= '0' && c <= '9':
			unit |= uint16(c - '0')
		case c >= 'a' && c <= 'f':
			unit |= uint16(c-'a') + 10
		case c >= 'A' && c <= 'F':
			unit |= uint16(c-'A') + 10
		default:
			return 0, false
		}
	}
	return unit, true
}

// validPrefix returns the length of the valid UTF-8 that raw starts with.
func validPrefix(raw []byte) int {
	n := 0
	for n < len(raw) {
		r, size := utf8.DecodeRune(raw[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}

// Decode reads exactly one JSON document from raw into v, a pointer, or
// refuses it with an [*Error] and leaves v alone.
//
// The document must use each field's exact name, at most once, and only fields
// that v has. It is read three times (is it JSON, does it fit v, take it over),
// which is nothing for the bodies of requests and too much for bulk data.
func Decode(raw []byte, v any) error {
	if err := Check(raw); err != nil {
		return err
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return &Error{Reason: ErrEmpty}
	}
	if err := wellFormed(raw); err != nil {
		return err
	}
	if err := fits(raw, v); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return &Error{Reason: ErrType} // v refuses what its parts accepted
	}
	return nil
}

// Explain returns what may be told of an error of [json.Unmarshal]: what is wrong
// and where, and not the value, which json and time repeat in theirs. It is for
// those who read documents of their own side without [Decode].
func Explain(err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong):
		return &Error{Reason: ErrType, Field: wrong.Field, Offset: wrong.Offset}
	case errors.As(err, &syntax):
		return &Error{Reason: ErrMalformed, Offset: syntax.Offset}
	default: // a type that reads itself, such as a time
		return &Error{Reason: ErrType}
	}
}

func wellFormed(raw []byte) error {
	var document json.RawMessage
	err := json.Unmarshal(raw, &document)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		// The decoder counts the byte that it stumbled over. If the document is
		// cut short, that is its last one.
		return &Error{Reason: ErrMalformed, Offset: max(0, min(syntax.Offset-1, int64(len(raw))))}
	}
	return &Error{Reason: ErrMalformed}
}
