package messaging_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"orderpaid/platform/messaging"
)

// The writer takes no notice of what json.Marshal would do; it must all the
// same write what json.Marshal writes, for whoever compares bytes.
func TestAnEnvelopeIsWrittenAsTheStandardLibraryWritesIt(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9_. -]{0,40}`),
		rapid.String(),
		rapid.SampledFrom([]string{"", "<&>", `"`, `\`, "\x00", "\x7f", "\xff", "\u2028", "注文", "é", "a\nb\tc", "\ufffd"}),
	)
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(0, 253_402_300_799).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
	})
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.Marshal(map[string]string{text.Draw(t, "name"): text.Draw(t, "value")})
		if err != nil {
			t.Fatal(err)
		}
		e := messaging.Envelope{Data: data, Meta: messaging.Meta{
			EventID: uuid.New(), EventType: text.Draw(t, "type"), SchemaVersion: rapid.Int().Draw(t, "schema"),
			AggregateType: text.Draw(t, "aggregate type"), AggregateID: text.Draw(t, "aggregate"), AggregateVersion: rapid.Int64().Draw(t, "version"),
			OccurredAt: instant.Draw(t, "occurred"), Producer: text.Draw(t, "producer"), Tenant: text.Draw(t, "tenant"),
			CorrelationID: text.Draw(t, "correlation"), CausationID: text.Draw(t, "causation"), TraceParent: text.Draw(t, "trace"),
		}}
		if rapid.Bool().Draw(t, "expires") {
			e.ExpiresAt = instant.Draw(t, "expiry")
		}
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := messaging.AppendEnvelope(e)
		if err != nil || string(got) != string(want) {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	})
}

func TestATimeWithoutAFormIsNotWritten(t *testing.T) {
	t.Parallel()
	e := messaging.Envelope{Data: json.RawMessage(`{}`), Meta: messaging.Meta{OccurredAt: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}}
	if got, err := messaging.AppendEnvelope(e); err == nil || !strings.Contains(err.Error(), "year") {
		t.Errorf("got %s, %v, want an error about the year", got, err)
	}
}
