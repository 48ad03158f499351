// Package strictjson reads JSON from people and machines that are not trusted.
//
// encoding/json is forgiving where a system that handles money must not be:
// it turns invalid UTF-8 and lone surrogates into U+FFFD without a word, and
// it accepts a second document after the first. PostgreSQL in turn refuses
// U+0000 in text and jsonb. [Check] finds all of these before anything is
// stored, so that what is kept is exactly what was sent, or an error.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// The reasons for which [Check] refuses a text. Callers branch on them to
// answer with a code that says which.
var (
	ErrInvalidUTF8   = errors.New("text is not valid UTF-8")
	ErrLoneSurrogate = errors.New("text holds half of a surrogate pair")
	ErrNUL           = errors.New("text holds U+0000, which PostgreSQL cannot store")
)

// Check reports whether raw can pass through Go and PostgreSQL without any of
// its characters being altered. It does not check that raw is well-formed
// JSON; decoding does.
//
// The six literal characters of an escaped backslash followed by u0000 are
// ordinary text and are left alone.
func Check(raw []byte) error {
	if !utf8.Valid(raw) {
		return ErrInvalidUTF8
	}
	if bytes.IndexByte(raw, 0) >= 0 {
		return ErrNUL
	}
	for i := bytes.IndexByte(raw, '\\'); i >= 0 && i+1 < len(raw); {
		next := i + 2 // the character behind a two-character escape
		if raw[i+1] == 'u' {
			unit, ok := hex4(raw[i+2:])
			next = i + 6
			switch {
			case !ok: // malformed: the decoder reports it with its position
				next = i + 2
			case unit == 0:
				return ErrNUL
			case unit >= 0xDC00 && unit <= 0xDFFF:
				return ErrLoneSurrogate
			case unit >= 0xD800 && unit <= 0xDBFF:
				if !lowSurrogate(raw[i+6:]) {
					return ErrLoneSurrogate
				}
				next = i + 12
			}
		}
		if next >= len(raw) {
			return nil
		}
		i = bytes.IndexByte(raw[next:], '\\')
		if i >= 0 {
			i += next
		}
	}
	return nil
}

// Decode checks raw and decodes exactly one JSON document from it into v.
// Fields that v does not have are an error, as is anything behind the document.
func Decode(raw []byte, v any) error {
	if err := Check(raw); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the document is empty")
		}
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is more text behind the JSON document, at byte %d", dec.InputOffset())
	}
	return nil
}

func hex4(b []byte) (unit uint16, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
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

func lowSurrogate(b []byte) bool {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return false
	}
	unit, ok := hex4(b[2:])
	return ok && unit >= 0xDC00 && unit <= 0xDFFF
}
