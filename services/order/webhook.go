package order

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/strictjson"
)

// A Verifier checks that a callback comes from the payment provider, by
// Standard Webhooks 1.0 with symmetric keys:
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
type Verifier struct{ keys [][]byte }

// Limits of what is verified. Without them an unsigned request chooses how
// many times its megabyte is hashed.
const (
	maxSignatures = 8
	clockSkew     = 5 * time.Minute // and so long a stolen callback can be sent again
)

// NewVerifier takes the secrets that may have signed a callback, each "whsec_"
// and 24 to 64 bytes in base64. Several are for rotation: add the new one, have
// the provider use it, remove the old one. Errors do not show secrets.
func NewVerifier(secrets []string) (*Verifier, error) {
	if len(secrets) == 0 {
		return nil, errors.New("no webhook secret")
	}
	v := new(Verifier)
	for i, secret := range secrets {
		encoded, ok := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("webhook secret %d is not whsec_ and 24 to 64 bytes in base64", i+1)
		}
		v.keys = append(v.keys, key)
	}
	return v, nil
}

// The reasons for which a callback is not the provider's. All of them are 401.
var (
	errUnsigned = &httpserver.Error{Status: http.StatusUnauthorized, Code: "signature_missing",
		Detail: "send webhook-id, webhook-timestamp and webhook-signature as Standard Webhooks 1.0 says"}
	errBadSignature = &httpserver.Error{Status: http.StatusUnauthorized, Code: "signature_invalid",
		Detail: "no signature is right for this id, timestamp and body"}
	errStale = &httpserver.Error{Status: http.StatusUnauthorized, Code: "signature_stale",
		Detail: "webhook-timestamp is more than five minutes away from now"}
)

// Verify returns the id of a callback whose signature is right for exactly
// these bytes, or an *httpserver.Error.
func (v *Verifier) Verify(header http.Header, body []byte, now time.Time) (id string, err error) {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	signatures := strings.Fields(header.Get("webhook-signature"))
	if id == "" || timestamp == "" || len(signatures) == 0 {
		return "", errUnsigned
	}
	// A dot in the id would let one signature stand for two splits into id,
	// timestamp and body.
	if !visible(id) || len(id) > maxKeyBytes || strings.Contains(id, ".") || len(signatures) > maxSignatures {
		return "", errBadSignature
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return "", errBadSignature
	}
	if !v.signed(id, timestamp, body, signatures) {
		return "", errBadSignature
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > clockSkew || age < -clockSkew {
		return "", errStale
	}
	return id, nil
}

func (v *Verifier) signed(id, timestamp string, body []byte, signatures []string) bool {
	for _, key := range v.keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		want := mac.Sum(nil)
		for _, s := range signatures {
			encoded, ok := strings.CutPrefix(s, "v1,") // others, such as v1a, are of schemes that we have no key for
			given, err := base64.StdEncoding.DecodeString(encoded)
			if ok && err == nil && hmac.Equal(given, want) {
				return true
			}
		}
	}
	return false
}

// parseCallback reads the body of a verified callback. Fields that it does not
// know are ignored, unlike everywhere else at this edge: a provider adds some
// without asking, and to refuse those would be to lose payments. For the same
// reason a type that it does not know may look as it likes.
func parseCallback(id string, body []byte) (Callback, error) {
	var document, data map[string]json.RawMessage
	if err := httpserver.DecodeJSON(body, &document); err != nil {
		return Callback{}, err
	}
	cb := Callback{ID: id, Body: body}
	if err := readField(document, "type", &cb.Type); err != nil {
		return Callback{}, err
	}
	if err := readField(document, "timestamp", &cb.At); err != nil && cb.known() {
		return Callback{}, err
	}
	if err := readField(document, "data", &data); err != nil && cb.known() {
		return Callback{}, err
	}
	if !cb.known() {
		cb.Said = whatIsSaid(id, document)
	}
	if err := cb.readData(data); err != nil {
		return Callback{}, err
	}
	return cb, cb.check()
}

// whatIsSaid returns the hash of all that a callback of an unknown type says,
// but for its time and its own id, which are others when the provider says the
// same again. Not of data alone: who puts the fields beside it would have said
// nothing, and two disputes would be one. An id that is not the callback's may be
// what it is about, and counts.
//
// Values are hashed as they came. Each has its length before it, or the end of
// one could pass for the name of the next.
func whatIsSaid(id string, document map[string]json.RawMessage) []byte {
	said := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(document)) {
		value := document[name]
		if name == "timestamp" || string(value) == strconv.Quote(id) {
			continue
		}
		fmt.Fprintf(said, "%d %s %d %s\n", len(name), name, len(value), value)
	}
	return said.Sum(nil)
}

// readData takes what a callback is about. What is required must be there and
// be right. Of the rest it takes what it can read: the provider would repeat a
// callback for ever that was refused for a null in a field that nobody needs,
// and the body is kept as it came, for the person who looks.
func (cb *Callback) readData(data map[string]json.RawMessage) error {
	for _, f := range []struct {
		name     string
		into     any
		required bool
	}{
		{"order_id", &cb.OrderID, cb.known()},
		{"payment_id", &cb.PaymentID, cb.known()},
		{"refund_id", &cb.RefundID, cb.Type == PaymentRefunded},
		{"amount", &cb.Amount.Amount, cb.known()},
		{"currency", &cb.Amount.Currency, cb.known()},
	} {
		if err := readField(data, f.name, f.into); err != nil && f.required {
			return err
		}
		if text, ok := f.into.(*string); ok && !f.required && len(*text) > maxKeyBytes {
			*text = ""
		}
	}
	return nil
}

func (cb *Callback) known() bool {
	return cb.Type == PaymentSucceeded || cb.Type == PaymentRefunded || cb.Type == PaymentFailed
}

func readField(object map[string]json.RawMessage, name string, into any) error {
	raw, present := object[name]
	if !present {
		return &httpserver.Error{Status: http.StatusBadRequest, Code: "missing_field", Detail: fmt.Sprintf("the callback has no %q", name)}
	}
	var answer *httpserver.Error
	if err := httpserver.DecodeJSON(raw, into); errors.As(err, &answer) {
		return &httpserver.Error{Status: answer.Status, Code: answer.Code, Detail: fmt.Sprintf("%q: %s", name, answer.Detail)}
	}
	return nil
}

// repeats reports whether the first body under the callback's id says the same
// as the callback. Providers write a callback anew for each attempt: with a time
// or a counter that has moved, a new field, or the members in another order.
func (cb *Callback) repeats(firstBody []byte) bool {
	first, err := parseCallback(cb.ID, firstBody)
	return err == nil && first.Type == cb.Type && first.OrderID == cb.OrderID && first.PaymentID == cb.PaymentID &&
		first.RefundID == cb.RefundID && first.Amount == cb.Amount && bytes.Equal(first.Said, cb.Said)
}

// check refuses values that could not even be kept for a person.
func (cb *Callback) check() error {
	for _, text := range []string{string(cb.Type), cb.OrderID, cb.PaymentID, cb.RefundID, cb.Amount.Currency} {
		if len(text) > maxKeyBytes {
			return invalid("invalid_callback", "type, ids and currency may have %d bytes each", maxKeyBytes)
		}
	}
	switch {
	case cb.Type == "":
		return invalid("invalid_callback", "type is empty")
	case cb.known() && !strictjson.Storable(cb.At):
		return invalid("invalid_callback", "timestamp is not of this era")
	case cb.known() && (cb.OrderID == "" || cb.PaymentID == ""):
		return invalid("invalid_callback", "order_id or payment_id is empty")
	case cb.Type == PaymentRefunded && cb.RefundID == "":
		return invalid("invalid_callback", "refund_id is empty")
	case cb.known() && cb.Amount.Amount <= 0:
		return invalid("invalid_callback", "amount is not above zero")
	}
	return nil
}
