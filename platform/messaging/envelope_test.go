package messaging

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const goodID = "0197c9a2-6f10-7c3a-9b51-3f0d6a1c2e4b"

// envelopeWith returns a good event in which one field is replaced; the value
// is raw JSON, and an empty one removes the field.
func envelopeWith(field, value string) []byte {
	fields := []struct{ name, value string }{
		{"event_id", `"` + goodID + `"`}, {"event_type", `"OrderPaid"`}, {"schema_version", `1`},
		{"aggregate_type", `"order"`}, {"aggregate_id", `"ord_1"`}, {"aggregate_version", `2`},
		{"occurred_at", `"2026-10-03T10:00:00+08:00"`}, {"producer", `"order"`}, {"data", `{"order_id":"ord_1"}`},
	}
	var parts []string
	found := false
	for _, f := range fields {
		if f.name == field {
			found = true
			f.value = value
		}
		if f.value != "" {
			parts = append(parts, `"`+f.name+`":`+f.value)
		}
	}
	if !found && field != "" {
		parts = append(parts, `"`+field+`":`+value)
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

// C01, C02, C03, C04, C12: what arrives from outside and can never be used is
// permanent on the first look, and says which fault it is.
func TestUnusableEventsArePermanentWithACodeThatSaysWhich(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		raw  []byte
		code string
	}{
		{"no body", nil, "empty_message"},
		{"HTML", []byte("<html><body>502</body></html>"), "bad_json"},
		{"JSON null", []byte("null"), "bad_event_id"},
		{"an array", []byte("[1,2]"), "bad_json"},
		{"half an event", envelopeWith("", "")[:60], "bad_json"},
		{"two documents", append(envelopeWith("", ""), "{}"...), "bad_json"},
		{"invalid UTF-8", envelopeWith("producer", "\"\xff\xfe\""), "bad_text"},
		{"a lone surrogate", envelopeWith("producer", `"\ud83d"`), "bad_text"},
		{"NUL", envelopeWith("producer", `"a\u0000b"`), "bad_text"},
		{"NUL in data", envelopeWith("data", `{"note":"a\u0000b"}`), "bad_text"},
		{"not a UUID", envelopeWith("event_id", `"evt-paid-1001"`), "bad_event_id"},
		{"upper case UUID", envelopeWith("event_id", `"`+strings.ToUpper(goodID)+`"`), "bad_event_id"},
		{"UUID in braces", envelopeWith("event_id", `"{`+goodID+`}"`), "bad_event_id"},
		{"UUID as URN", envelopeWith("event_id", `"urn:uuid:`+goodID+`"`), "bad_event_id"},
		{"UUID without dashes", envelopeWith("event_id", `"`+strings.ReplaceAll(goodID, "-", "")+`"`), "bad_event_id"},
		{"the nil UUID", envelopeWith("event_id", `"00000000-0000-0000-0000-000000000000"`), "bad_event_id"},
		{"a number as id", envelopeWith("event_id", `7`), "bad_json"},
		{"no type", envelopeWith("event_type", ""), "bad_event_type"},
		{"a type with wildcards", envelopeWith("event_type", `"Order.>"`), "bad_event_type"},
		{"version zero", envelopeWith("schema_version", `0`), "bad_schema_version"},
		{"no aggregate", envelopeWith("aggregate_id", `""`), "bad_aggregate_id"},
		{"a 3 KB aggregate id", envelopeWith("aggregate_id", `"`+strings.Repeat("x", 3000)+`"`), "bad_aggregate_id"},
		{"aggregate version zero", envelopeWith("aggregate_version", `0`), "bad_aggregate_version"},
		{"a broken aggregate version", envelopeWith("aggregate_version", `2.5`), "bad_json"},
		{"no time", envelopeWith("occurred_at", ""), "bad_occurred_at"},
		{"time without zone", envelopeWith("occurred_at", `"2026-10-03T10:00:00"`), "bad_json"},
		{"lower-case t and z", envelopeWith("occurred_at", `"2026-10-03t10:00:00z"`), "bad_json"},
		{"time as a number", envelopeWith("occurred_at", `1790000000`), "bad_json"},
		{"24 o'clock", envelopeWith("occurred_at", `"2026-10-03T24:00:00Z"`), "bad_json"},
		{"the year 1", envelopeWith("occurred_at", `"0001-01-01T00:00:00Z"`), "bad_occurred_at"},
		{"the year 10000 in UTC", envelopeWith("occurred_at", `"9999-12-31T23:59:59-23:59"`), "bad_occurred_at"},
		{"the year 1969 in UTC", envelopeWith("occurred_at", `"1970-01-01T00:00:00+14:00"`), "bad_occurred_at"},
		{"an end in the year 10000", envelopeWith("expires_at", `"9999-12-31T23:59:59-23:59"`), "bad_expires_at"},
		{"a version that no column holds", envelopeWith("schema_version", `99999999999`), "bad_schema_version"},
		{"data null", envelopeWith("data", `null`), "bad_data"},
		{"data an array", envelopeWith("data", `[]`), "bad_data"},
		{"over 256 KiB", envelopeWith("data", `{"x":"`+strings.Repeat("x", MaxEventBytes)+`"}`), "too_large"},
	}
	for _, c := range cases {
		_, err := decodeEnvelope(c.raw)
		if !IsPermanent(err) {
			t.Errorf("%s: got %v, want a permanent error", c.name, err)
			continue
		}
		if got := codeOf(err); got != c.code {
			t.Errorf("%s: got code %s (%v), want %s", c.name, got, err, c.code)
		}
	}
}

// Two readers must not see two events: one takes the first of two fields and one
// the last, one minds the case of a name and one does not.
func TestAnEnvelopeThatTwoReadersCouldReadInTwoWaysIsUnusable(t *testing.T) {
	t.Parallel()
	good := string(envelopeWith("", ""))
	with := func(members string) string { return strings.Replace(good, "{", "{"+members+",", 1) }
	cases := []struct{ name, raw, code string }{
		{"another id before it", with(`"event_id":"0197c9a2-6f10-7c3a-9b51-000000000000"`), "duplicate_field"},
		{"the same id twice", with(`"event_id":"` + goodID + `"`), "duplicate_field"},
		{"a name hidden behind an escape", with(`"event\u005fid":"` + goodID + `"`), "duplicate_field"},
		{"data behind the data", strings.TrimSuffix(good, "}") + `,"data":{"order_id":"ord_2"}}`, "duplicate_field"},
		{"an unknown field twice", with(`"colour":1,"colour":1`), "duplicate_field"},
		{"many fields and one twice", with(`"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1,"a":1`), "duplicate_field"},
		{"capitals beside the name", with(`"Event_ID":"` + goodID + `"`), "misspelt_field"},
		{"camel case beside the name", with(`"EventId":"` + goodID + `"`), "misspelt_field"},
		{"the name without underscore", with(`"eventid":"` + goodID + `"`), "misspelt_field"},
		{"capitals in place of the name", strings.Replace(good, `"aggregate_id"`, `"Aggregate_Id"`, 1), "misspelt_field"},
		{"a long s", with(`"ſchema_version":2`), "misspelt_field"},
		{"a field that the event does not have", with(`"Expires_at":"2026-10-03T10:00:00Z"`), "misspelt_field"},
	}
	for _, c := range cases {
		if _, ok := scanEnvelope([]byte(c.raw)); ok {
			t.Errorf("%s: it is scanned", c.name)
		}
		env, err := decodeEnvelope([]byte(c.raw))
		if !IsPermanent(err) || codeOf(err) != c.code || env.AggregateID != "" {
			t.Errorf("%s: got %+v, %v, want nothing read and a permanent error with code %s", c.name, env, err, c.code)
		}
	}
	if _, err := correct([]byte(with(`"aggregate_version":3`))); codeOf(err) != "duplicate_field" {
		t.Errorf("as a correction: got %v, want duplicate_field", err)
	}
	for _, others := range []string{`"colour":1,"Colour":2`, `"event":1`, `"id":1`} {
		if _, err := decodeEnvelope([]byte(with(others))); err != nil {
			t.Errorf("with %s: got %v, want it read", others, err)
		}
	}
}

// A field that is missing in the list would not be looked after.
func TestTheNamesOfAnEnvelopeAreThoseOfItsFields(t *testing.T) {
	t.Parallel()
	var got []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Envelope]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			got = append(got, name)
		}
	}
	want := slices.Clone(envelopeFields)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got fields %v, want %v", got, want)
	}
}

// C12: a time may be written in several ways, and they are one instant.
func TestDocumentedFormsOfTimeAreTheSameInstant(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 10, 3, 2, 0, 0, 0, time.UTC)
	for _, form := range []string{"2026-10-03T10:00:00+08:00", "2026-10-03T02:00:00Z", "2026-10-03T02:00:00.000000000Z", "2026-10-02T22:00:00-04:00"} {
		env, err := decodeEnvelope(envelopeWith("occurred_at", `"`+form+`"`))
		if err != nil {
			t.Errorf("%s: %v", form, err)
		} else if !env.OccurredAt.Equal(want) {
			t.Errorf("%s: got %v, want %v", form, env.OccurredAt, want)
		}
	}
}

// C02: text that merely looks like an escape is text.
func TestEscapedBackslashBeforeU0000SurvivesByteForByte(t *testing.T) {
	t.Parallel()
	data := []byte(`{"note":"a\\u0000b"}`)
	env, err := decodeEnvelope(envelopeWith("data", string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(env.Data, data) {
		t.Errorf("got %s, want %s", env.Data, data)
	}
}

// C13: a trace is no reason to refuse an event.
func TestUnknownFieldsAndRubbishInTraceParentAreIgnored(t *testing.T) {
	t.Parallel()
	for _, raw := range [][]byte{
		envelopeWith("colour", `{"deep":[1,2,3]}`),
		envelopeWith("trace_parent", `"00-zzzz\r\nX-Evil: 1"`),
		envelopeWith("trace_parent", `"`+strings.Repeat("0", 4096)+`"`),
	} {
		if _, err := decodeEnvelope(raw); err != nil {
			t.Errorf("%.80s…: got %v, want it to be read", raw, err)
		}
	}
}

// C05, C13: what JavaScript would round is kept, what no tracer would accept
// never becomes a header.
func TestNumbersKeepTheirDigitsAndTraceParentsAreChecked(t *testing.T) {
	t.Parallel()
	env, err := decodeEnvelope(envelopeWith("aggregate_version", `9007199254740993`))
	if err != nil || env.AggregateVersion != 9007199254740993 {
		t.Errorf("got %d, %v", env.AggregateVersion, err)
	}
	good := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for value, want := range map[string]bool{
		good: true, "": false, good[:40]: false, strings.ToUpper(good): false, "ff" + good[2:]: false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false, good + "\n": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
	} {
		if got := validTraceParent(value); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}

// C60: what looks personal in the text of an error is cut out of it.
func TestErrorTextsLoseWhatIsPersonal(t *testing.T) {
	t.Parallel()
	err := errors.New("send to mei.lin@example.com (card 4111 1111 1111 1111, phone +86 138 0013 8000): \x00 refused")
	got := detailOf(err)
	for _, secret := range []string{"mei.lin", "4111", "138 0013", "\x00"} {
		if strings.Contains(got, secret) {
			t.Errorf("got %q, want it without %q", got, secret)
		}
	}
	if !strings.Contains(got, "refused") {
		t.Errorf("got %q, want the rest kept", got)
	}
}

func TestWhatIsSaidAboutAnUnreadableEventHoldsNoneOfItsValues(t *testing.T) {
	t.Parallel()
	for field, value := range map[string]string{"occurred_at": `"secret-4711"`, "schema_version": `"secret-4711"`, "aggregate_version": `4711`, "event_id": `"secret-4711"`} {
		_, err := decodeEnvelope(envelopeWith(field, value+`,"more":secret-4711`))
		if err == nil || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: got %v, want an error without the value", field, err)
		}
		_, err = decodeEnvelope(envelopeWith(field, strings.Replace(value, "4711", "4711.5", 1)))
		if err == nil || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: got %v, want an error without the value", field, err)
		}
	}
}
