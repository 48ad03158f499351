package messaging_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/messagingtest"
)

// scanned checks an envelope that the fast reader accepts against the strict one.
func scanned(t *testing.T, raw []byte) bool {
	t.Helper()
	got, ok := messaging.ScanEnvelope(raw)
	if !ok || !json.Valid(got.Data) { // the second: whoever decodes the data will say so
		return false
	}
	want, err := messaging.ParseEnvelope(raw)
	if err != nil {
		t.Fatalf("%q is scanned, but refused by the parser: %v", raw, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: got %+v, want %+v", raw, got, want)
	}
	return true
}

func TestWhatTheOutboxWritesIsScanned(t *testing.T) {
	t.Parallel()
	raw := string(messagingtest.Envelope(t, "thing-1", 3, changed{N: 7, Note: `brackets ]} and " quotes \`}))
	if !scanned(t, []byte(raw)) {
		t.Errorf("%s is not scanned", raw)
	}
	spaced := strings.NewReplacer(`":`, "\" :\n", `,"`, " ,\t\"").Replace(raw) + "\r\n "
	if !scanned(t, []byte(spaced)) {
		t.Errorf("%s is not scanned", spaced)
	}
	added := strings.Replace(raw, "{", `{"added_later":[{"a":"]"},null,-1.5e3],`, 1)
	if !scanned(t, []byte(added)) {
		t.Errorf("%s is not scanned", added)
	}
}

// What is written in another way, or wrongly, is for the parser, which says
// what is wrong with it.
func TestWhatIsWrittenInAnotherWayIsLeftToTheParser(t *testing.T) {
	t.Parallel()
	raw := string(messagingtest.Envelope(t, "thing-1", 3, changed{N: 7}))
	if !strings.Contains(raw, `"aggregate_id":"thing-1"`) {
		t.Fatalf("the envelope is not written as this test changes it: %s", raw)
	}
	for name, other := range map[string]string{
		"an escape":                     strings.Replace(raw, `"thing-1"`, `"thing\u002d1"`, 1),
		"a name in capitals":            strings.Replace(raw, `"aggregate_id"`, `"Aggregate_ID"`, 1),
		"a field twice":                 strings.Replace(raw, "{", `{"aggregate_id":"thing-2",`, 1),
		"null":                          strings.Replace(raw, `"thing-1"`, "null", 1),
		"a number in quotes":            strings.Replace(raw, `"aggregate_version":3`, `"aggregate_version":"3"`, 1),
		"a fraction":                    strings.Replace(raw, `"aggregate_version":3`, `"aggregate_version":3.0`, 1),
		"a number too large":            strings.Replace(raw, `"aggregate_version":3`, `"aggregate_version":9223372036854775808`, 1),
		"an unknown field twice":        strings.Replace(raw, "{", `{"added_later":1,"x":2,"added_later":1,`, 1),
		"a name without its underscore": strings.Replace(raw, "{", `{"eventid":1,`, 1),
		"a wrong unknown value":         strings.Replace(raw, "{", `{"added_later":[1 2],`, 1),
		"more behind it":                raw + "{}",
		"an end too early":              raw[:len(raw)-1],
		"a comma too many":              raw[:len(raw)-1] + ",}",
		"no comma":                      strings.Replace(raw, `,"aggregate_id"`, ` "aggregate_id"`, 1),
		"a control character":           strings.Replace(raw, "thing-1", "thing\t1", 1),
		"a date that is none":           strings.Replace(raw, `"occurred_at":"2`, `"occurred_at":"x`, 1),
		"data that is a list":           strings.Replace(raw, `"data":{`, `"data":[{`, 1),
		"nothing":                       "",
		"a text":                        `"event_id"`,
		"an empty object":               "{}",
	} {
		if _, ok := messaging.ScanEnvelope([]byte(other)); ok {
			t.Errorf("%s is scanned: %s", name, other)
		}
	}
}

func FuzzAnEnvelopeThatIsScannedIsWhatTheParserMakesOfIt(f *testing.F) {
	raw := string(messagingtest.Envelope(f, "thing-1", 3, changed{N: 7, Note: "a"}))
	f.Add([]byte(raw))
	f.Add([]byte(strings.Replace(raw, "{", `{"expires_at":"2026-01-02T03:04:05+08:00","added":{"x":[true]},`, 1)))
	f.Add([]byte(strings.Replace(raw, `"data":{`, `"data":{"a":"\\\"}",`, 1)))
	f.Add([]byte(strings.Replace(raw, "{", `{"added":1,"added":2,`, 1)))
	f.Add([]byte(strings.Replace(raw, "{", `{"eventid":1,`, 1)))
	f.Fuzz(func(t *testing.T, raw []byte) { scanned(t, raw) })
}
