package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"orderpaid/platform/strictjson"
)

// seeds are where fuzzing starts; without -fuzz they are ordinary cases.
var seeds = []string{
	`{"a":1}`, `{"a":1,"a":2}`, `{"a":{"b":[1,2,{"c":null}]}}`, `[]`, `null`, `"a\\u0000b"`, `"a\u0000b"`,
	`"\ud83d\ude00"`, `"\ud83d"`, `"\ude00"`, `"\\\ud83d\u0041"`, `"\u`, `"\u00`, `\`, `"\ufffd"`, "\"\ufffd\"",
	"\"\xff\"", "\"\xed\xa0\x80\"", "\x00", `{"a":1}x`, `{"A":1,"a":2}`, `1e999`, `-0`, `{"":{"":1}}`, "\ufeff1",
}

// FuzzCheckFindsExactlyWhatDecodingAlters compares Check with a slow reference:
// decode with encoding/json, and look for characters that the sender did not
// write.
func FuzzCheckFindsExactlyWhatDecodingAlters(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := strictjson.Check(raw)
		if !json.Valid(raw) {
			if err == nil && !utf8.Valid(raw) {
				t.Fatalf("Check(%q) = nil", raw)
			}
			return
		}
		text := textOf(t, raw)
		altered := strings.Count(text, "\ufffd") > replacementsWritten(raw) || strings.Contains(text, "\x00")
		if altered != (err != nil) {
			t.Fatalf("Check(%q) = %v, but decoding gives %q", raw, err, text)
		}
	})
}

// FuzzDecodeAcceptsOnlyWhatEveryReaderReadsAlike: whatever Decode accepts, a
// reader that takes the first of two names and one that takes the last agree.
func FuzzDecodeAcceptsOnlyWhatEveryReaderReadsAlike(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got, plain any
		if strictjson.Decode(raw, &got) != nil {
			return
		}
		if err := json.Unmarshal(raw, &plain); err != nil {
			t.Fatalf("Decode accepts %q, which encoding/json refuses: %v", raw, err)
		}
		if diff := cmp.Diff(plain, got); diff != "" {
			t.Fatalf("%q (-encoding/json +strictjson)\n%s", raw, diff)
		}
		// Names that collide vanish from a map: every member that is written
		// must still be there.
		if members, kept := strings.Count(outsideStrings(raw), ":"), membersIn(got); members != kept {
			t.Fatalf("%q has %d members, of which %d are left", raw, members, kept)
		}
	})
}

var stringLiteral = regexp.MustCompile(`"(\\.|[^"\\])*"`)

func outsideStrings(raw []byte) string { return stringLiteral.ReplaceAllString(string(raw), "") }

func membersIn(v any) int {
	n := 0
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			n += membersIn(element)
		}
	case map[string]any:
		n += len(v)
		for _, element := range v {
			n += membersIn(element)
		}
	}
	return n
}

// textOf returns all strings of a well-formed document, names included, as
// encoding/json decodes them.
func textOf(t *testing.T, raw []byte) string {
	t.Helper()
	var text strings.Builder
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("%q is valid, and yet: %v", raw, err)
		}
		if s, ok := token.(string); ok {
			text.WriteString(s)
		}
	}
}

var escape = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// replacementsWritten counts the U+FFFD that the sender wrote, as themselves
// or as escapes.
func replacementsWritten(raw []byte) int {
	n := bytes.Count(raw, []byte("\ufffd"))
	for _, sequence := range escape.FindAll(raw, -1) {
		if strings.EqualFold(string(sequence), `\ufffd`) {
			n++
		}
	}
	return n
}
