// Package auth tells a service which customer is asking, and keeps customers
// out of each other's data.
//
//	request ─► Customers: bearer token ─► signature, issuer, audience, expiry ─► rate limit ─► route
//	                                                                    │
//	                             May(ctx, user), or Own("id") on a path ┘
//
// It promises: without a valid token there is no answer but 401; a customer who
// asks for what is another's gets the answer that he would get if it did not
// exist; and nobody asks more often than his limit.
//
// It does not issue tokens: that is the business of an identity provider, here
// any that publishes its keys as a JSON Web Key Set (RFC 7517). The demo's is in
// demo/sim. Operators have an interface and tokens of their own, see
// platform/opsapi.
//
// Read issuer.go for what is configured and auth.go for the rest.
package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/httprate"

	"orderpaid/platform/httpserver"
)

// A Guard stands before the routes of customers. Its zero value lets nobody in.
type Guard struct {
	verifier *oidc.IDTokenVerifier
	limit    func(http.Handler) http.Handler
	open     bool
}

// Open returns a guard that asks for nothing and lets everybody see everything:
// for a shop on one person's machine, and for tests of what lies behind.
func Open() *Guard { return &Guard{open: true} }

// algorithms are those with a public and a private half. A verifier that also
// took HS256 could be fooled with the public key as the secret.
var algorithms = []string{oidc.ES256, oidc.RS256, oidc.EdDSA}

// New returns a guard that takes tokens of one issuer for one audience. The
// issuer's keys are fetched from keysURL when the first token comes, and again
// when one is signed with a key that is not known.
func New(issuer, audience, keysURL string, perSecond int) *Guard {
	client := &http.Client{Timeout: keysTimeout}
	remote := oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), client), keysURL)
	return &Guard{
		verifier: oidc.NewVerifier(issuer, keys{remote}, &oidc.Config{ClientID: audience, SupportedSigningAlgs: algorithms}),
		limit: httprate.LimitBy(perSecond*limitSeconds, limitSeconds*time.Second,
			func(r *http.Request) (string, error) { return caller(r.Context()), nil },
			httprate.WithLimitHandler(func(w http.ResponseWriter, r *http.Request) { httpserver.WriteError(w, r, errTooMany) })),
	}
}

const (
	keysTimeout  = 3 * time.Second // within the deadline of the request that waits for the keys
	limitSeconds = 10              // the window over which the rate is counted: a page that loads may burst
)

var (
	errNoToken  = &httpserver.Error{Status: http.StatusUnauthorized, Code: "token_missing", Detail: "send a token: Authorization: Bearer …"}
	errBadToken = &httpserver.Error{Status: http.StatusUnauthorized, Code: "token_invalid", Detail: "the token is not one of this shop's issuer, not for this shop, or has expired"}
	errNoKeys   = &httpserver.Error{Status: http.StatusServiceUnavailable, Code: "issuer_unavailable", Detail: "tokens cannot be verified at the moment; try again"}
	errTooMany  = &httpserver.Error{Status: http.StatusTooManyRequests, Code: "too_many_requests", Detail: "wait for as long as the header Retry-After says"}

	// ErrNotYours answers who states a user that he is not.
	ErrNotYours = &httpserver.Error{Status: http.StatusForbidden, Code: "not_yours", Detail: "the token is another user's"}
)

// Customers lets a request through if it carries a valid token, and remembers
// whose it is.
func (g *Guard) Customers(next http.Handler) http.Handler {
	if g.open {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, everybody)))
		})
	}
	if g.verifier == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httpserver.WriteError(w, r, errNoToken) })
	}
	limited := g.limit(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := g.verify(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="shop"`)
			httpserver.WriteError(w, r, err)
			return
		}
		then := limited
		if user == everybody {
			then = next
		}
		then.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, user)))
	})
}

// verify returns the subject of the request's token. Errors say nothing of the
// token: they may be logged.
func (g *Guard) verify(r *http.Request) (user string, err error) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return "", errNoToken
	}
	scheme, raw, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || raw == "" {
		return "", errNoToken
	}
	var unavailable error
	token, err := g.verifier.Verify(context.WithValue(r.Context(), outageKey{}, &unavailable), raw)
	switch {
	case unavailable != nil:
		return "", errNoKeys
	case err != nil || token.Subject == "" || token.Subject == everybody:
		return "", errBadToken
	}
	var claims struct {
		Scope string `json:"scope"`
	}
	if err := token.Claims(&claims); err != nil {
		return "", errBadToken
	}
	if slices.Contains(strings.Fields(claims.Scope), AnyCustomer) {
		return everybody, nil
	}
	return token.Subject, nil
}

// keys notes when a signature could not be checked at all: a customer with a
// good token must not be told that it is bad because the issuer is away.
type keys struct{ remote oidc.KeySet }

type outageKey struct{}

func (k keys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.remote.VerifySignature(ctx, jwt)
	var network *url.Error
	if outage, ok := ctx.Value(outageKey{}).(*error); ok && (errors.As(err, &network) || ctx.Err() != nil) {
		*outage = err
	}
	if err != nil {
		return nil, fmt.Errorf("verify the signature: %w", err)
	}
	return payload, nil
}

// AnyCustomer is the scope (RFC 8693, claim "scope") of a service that acts for
// customers, as a shop's pages do: it sees what each of them would see, and is
// not limited as one of them would be.
const AnyCustomer = "customers"

type callerKey struct{}

// everybody is no user id: those have no star.
const everybody = "*"

// caller returns whose request this is, or nothing if no guard has seen it.
func caller(ctx context.Context) string {
	user, _ := ctx.Value(callerKey{}).(string)
	return user
}

// May reports whether the caller may see what belongs to the user. Where no
// guard stands before the route, nobody may.
func May(ctx context.Context, user string) bool {
	c := caller(ctx)
	return c == everybody || c != "" && c == user
}

// Only returns the user that a list must be limited to, or nothing if the
// caller may see all.
func Only(ctx context.Context) (user string, limited bool) {
	if c := caller(ctx); c != everybody {
		return c, true
	}
	return "", false
}

// Own refuses requests whose path names another user than the caller, as if
// that user did not exist.
func Own(param string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !May(r.Context(), chi.URLParam(r, param)) {
				httpserver.WriteError(w, r, &httpserver.Error{Status: http.StatusNotFound, Code: "user_not_found", Detail: "there is nothing here for this token"})
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}
