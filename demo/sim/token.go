package sim

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"orderpaid/platform/httpserver"
)

// An issuer gives anybody a token for any user. It is the demo's stand-in for
// an identity provider, which would ask for a password first; its key is made
// at the start and ends with the process.
type issuer struct {
	name     string
	audience string
	signer   jose.Signer
	public   jose.JSONWebKeySet
}

// tokenLife is short: whoever holds a token is the user, until it ends.
const tokenLife = 15 * time.Minute

func newIssuer(name, audience string) (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	id := rand.Text()[:8]
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	public := jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
	return &issuer{name, audience, signer, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}}}, nil
}

var tokenUser = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// token answers GET /token?user= with the bare token, for curl's sake. With
// scope= it is one of a service.
func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	user := r.URL.Query().Get("user")
	if !tokenUser.MatchString(user) {
		httpserver.WriteError(w, r, &httpserver.Error{Status: http.StatusBadRequest, Code: "bad_user_id", Detail: "user has 1 to 64 letters, digits, '-' and '_'"})
		return
	}
	now := time.Now()
	scope := struct {
		Scope string `json:"scope,omitempty"`
	}{r.URL.Query().Get("scope")}
	raw, err := jwt.Signed(i.signer).Claims(scope).Claims(jwt.Claims{
		Issuer: i.name, Audience: jwt.Audience{i.audience}, Subject: user,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(tokenLife)),
	}).Serialize()
	if err != nil {
		httpserver.WriteError(w, r, fmt.Errorf("issue a token: %w", err))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(raw)) // the client has gone: nobody to tell
}

// keys answers GET /.well-known/jwks.json.
func (i *issuer) keys(w http.ResponseWriter, _ *http.Request) {
	httpserver.WriteJSON(w, http.StatusOK, i.public)
}
