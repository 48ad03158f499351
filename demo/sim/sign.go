package sim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A signer signs callbacks as Standard Webhooks 1.0 prescribes.
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
type signer struct{ key []byte }

// newSigner reads a secret in the form that providers hand out: whsec_ and the
// base64 of 24 to 64 bytes.
func newSigner(secret string) (signer, error) {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	if !ok {
		return signer{}, errors.New("webhook secret does not begin with whsec_")
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return signer{}, errors.New("webhook secret is not base64") // not err: it would quote the secret
	}
	if len(key) < 24 || len(key) > 64 {
		return signer{}, fmt.Errorf("webhook secret has %d bytes, not 24 to 64", len(key))
	}
	return signer{key}, nil
}

// sign returns the value of the webhook-signature header. The time is part of
// what is signed, so every attempt has a signature of its own.
func (s signer) sign(id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
