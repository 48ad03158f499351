package strictjson

import "time"

// The years that a time from outside may be in, in UTC.
const (
	minYear = 1970
	maxYear = 9999
)

// Storable reports whether t, which came from outside, may be kept: its year in
// UTC is one from 1970 to 9999. RFC 3339 knows no other years, and encoding/json
// refuses to write them, so that one such row would make every list that it is
// in unreadable.
//
// The zone of the sender proves nothing: 9999-12-31T23:59:59-23:59 is read
// without an error and is a time of the year 10000.
func Storable(t time.Time) bool {
	year := t.UTC().Year()
	return minYear <= year && year <= maxYear
}
