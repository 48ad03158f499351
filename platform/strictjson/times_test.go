package strictjson

import (
	"encoding/json"
	"errors"
	"strings"
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

func TestAnExplanationNamesTheFieldAndNeverTheValue(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]*Error{
		`{"at": "rubbish"}`: {Reason: ErrType},
		`{"n": 4711.5}`:     {Reason: ErrType, Field: "n"},
		`{"n": "secret"}`:   {Reason: ErrType, Field: "n"},
		`{"n": secret}`:     {Reason: ErrMalformed},
	} {
		var v struct {
			At time.Time `json:"at"`
			N  int       `json:"n"`
		}
		var got *Error
		err := Explain(json.Unmarshal([]byte(given), &v))
		if !errors.As(err, &got) || got.Reason != want.Reason || got.Field != want.Field {
			t.Errorf("%s: got %v, want %v", given, err, want)
		}
		for _, value := range []string{"rubbish", "4711", "secret"} {
			if strings.Contains(err.Error(), value) {
				t.Errorf("%s: the explanation repeats the value: %v", given, err)
			}
		}
	}
}
