// Package authtest gives tests an identity provider: it signs tokens with a key
// of its own and publishes the public half over HTTP.
package authtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"orderpaid/platform/auth"
)

// Audience is for whom the tokens of an [Issuer] are.
const Audience = "orderpaid"

// An Issuer ends with its test.
type Issuer struct {
	Server *httptest.Server // its URL is the name of the issuer
	signer jose.Signer
}

// New starts an issuer.
func New(t testing.TB) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "test"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	public := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "test", Algorithm: string(jose.ES256), Use: "sig"}}}
	i := &Issuer{signer: signer}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(public) }))
	t.Cleanup(i.Server.Close)
	return i
}

// Guard returns a guard that takes this issuer's tokens, and perSecond requests
// of each customer.
func (i *Issuer) Guard(perSecond int) *auth.Guard {
	return auth.New(i.Server.URL, Audience, i.Server.URL, perSecond)
}

// Claims are those of a good token; tests change them.
func (i *Issuer) Claims(user string) map[string]any {
	now := time.Now()
	return map[string]any{"iss": i.Server.URL, "aud": Audience, "sub": user, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
}

// Sign returns a token with these claims.
func (i *Issuer) Sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	raw, err := jwt.Signed(i.signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Request returns a request that carries the user's token.
func (i *Issuer) Request(t testing.TB, user, method, path, body string) *http.Request {
	t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+i.Sign(t, i.Claims(user)))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}
