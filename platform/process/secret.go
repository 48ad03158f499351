package process

import "log/slog"

// A Secret is a value that must not be shown: an address with a password, a
// key. However it is printed, logged or encoded, it reads ***, or nothing if it
// is empty. string(s) is the value.
type Secret string

// String returns *** or, if there is no secret, nothing.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString masks %#v.
func (s Secret) GoString() string { return `process.Secret("` + s.String() + `")` }

// LogValue masks log lines.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText masks JSON and whatever else encodes text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
