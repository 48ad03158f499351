package strictjson

import (
	"testing"
	"time"
)

func TestATimeIsStorableByItsYearInUTCAndNotInTheSendersZone(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]bool{
		"1970-01-01T00:00:00Z":           true,
		"1969-12-31T23:00:00-01:00":      true,
		"9999-12-31T23:59:59.999999999Z": true,
		"9999-12-31T23:59:59+14:00":      true,
		"9999-12-31T23:59:59-23:59":      false,
		"1970-01-01T00:00:00+14:00":      false,
		"1969-12-31T23:59:59Z":           false,
		"0001-01-01T00:00:00Z":           false, // the zero time: nothing was sent
		"0000-01-01T00:00:00Z":           false,
	} {
		at, err := time.Parse(time.RFC3339Nano, given)
		if err != nil {
			t.Fatal(err)
		}
		if got := Storable(at); got != want {
			t.Errorf("%s: got %t, want %t", given, got, want)
		}
	}
}
