package sim

import (
	"testing"
	"time"
)

// The first signature is the one that the implementations of Standard Webhooks
// test themselves with; the others were computed with
//
//	printf '%s' "$id.$time.$body" | openssl dgst -sha256 -mac HMAC -macopt hexkey:$key -binary | base64
func TestSignaturesAreThoseOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, secret, id string
		at               int64
		body, want       string
	}{
		{"the specification's", testSecret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, `{"test": 2432232314}`,
			"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		{"text outside ASCII", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "msg_1", 1791000000, `{"note":"支付成功"}`,
			"v1,opaD0CT0+leK77vpR2bFjKO3sVstnGD9HTwrnaut+qU="},
		{"empty body", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "msg_2", 0, "",
			"v1,n5zxUNLhZjudN9+6Nrv6eR3PL0jbD2CUcvvGZoey+Is="},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := newSigner(c.secret)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.sign(c.id, time.Unix(c.at, 0), []byte(c.body)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestUnusableSecretsAreRefused(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{
		"empty":      "",
		"no prefix":  "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"not base64": "whsec_!!!!",
		"too short":  "whsec_c2hvcnQ=",
		"too long":   "whsec_" + "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB",
	} {
		if _, err := newSigner(secret); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
