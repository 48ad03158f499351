package opsapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/process"
)

// A Role is what the bearer of a token may do. Viewer, Operator and Approver
// each include the one before; Peer stands apart.
type Role string

// The roles.
const (
	// Viewer reads everything but payloads.
	Viewer Role = "viewer"

	// Operator also acts, and sees payloads; both are recorded.
	Operator Role = "operator"

	// Approver also lets a large replay of somebody else be started.
	Approver Role = "approver"

	// Peer is another service: it reads events of the outbox, with their
	// payloads, and nothing else. It fills gaps and replays with them.
	Peer Role = "peer"
)

// allows reports whether a bearer of role r may do what needs the role needed.
func (r Role) allows(needed Role) bool {
	rank := map[Role]int{Viewer: 1, Operator: 2, Approver: 3}
	if needed == Peer {
		return r == Peer || rank[r] >= rank[Operator]
	}
	return rank[r] >= rank[needed]
}

// minToken is the shortest token that is taken: what a person can remember, a
// program can guess.
const minToken = 16

// Tokens are who may use the ops API. The zero value lets nobody in.
type Tokens struct{ bearers []bearer }

// A bearer is kept by the hash of the token: hashes have one length, so that
// the time of a comparison tells nothing, and a dump of the memory no token.
type bearer struct {
	name string
	role Role
	hash [sha256.Size]byte
}

var bearerName = regexp.MustCompile(`^[A-Za-z0-9_.@-]{1,64}$`)

// ParseTokens reads entries of the form name:role:token, separated by blanks or
// line ends; a line that begins with # is a remark. The name is who acts, as
// the audit log will show it. Errors never repeat a token.
//
// Instead of a token its hash may stand, as sha256: and 64 hexadecimal digits:
// then a service that was taken over holds nothing with which it could act as a
// person, or as another service. A hash hides only what cannot be guessed, so
// the token must be a random one.
func ParseTokens(text string) (Tokens, error) {
	var t Tokens
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, entry := range strings.Fields(line) {
			parts := strings.SplitN(entry, ":", 3)
			if len(parts) != 3 || !bearerName.MatchString(parts[0]) {
				return Tokens{}, fmt.Errorf("token %d is not name:role:token", len(t.bearers)+1)
			}
			name, role, token := parts[0], Role(parts[1]), parts[2]
			switch {
			case role != Viewer && role != Operator && role != Approver && role != Peer:
				return Tokens{}, fmt.Errorf("token of %s: the role is none of viewer, operator, approver, peer", name)
			case len(token) < minToken:
				return Tokens{}, fmt.Errorf("token of %s has fewer than %d characters", name, minToken)
			}
			hash, err := hashOf(token)
			if err != nil {
				return Tokens{}, fmt.Errorf("token of %s: %w", name, err)
			}
			t.bearers = append(t.bearers, bearer{name, role, hash})
		}
	}
	return t, nil
}

// hashPrefix marks an entry that has the hash of a token and not the token.
const hashPrefix = "sha256:"

// HashedToken returns what may stand in an entry instead of the token.
func HashedToken(token string) string {
	hash := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(hash[:])
}

func hashOf(token string) (hash [sha256.Size]byte, err error) {
	digits, hashed := strings.CutPrefix(token, hashPrefix)
	if !hashed {
		return sha256.Sum256([]byte(token)), nil
	}
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(hash) {
		return hash, fmt.Errorf("after sha256: there must be %d hexadecimal digits", 2*len(hash)) // without its text
	}
	return [sha256.Size]byte(raw), nil
}

// loadTokens reads the tokens of both settings. Entries of the file are in the
// same form; a file is how most systems hand secrets to a process.
func loadTokens(inline process.Secret, file string) (Tokens, error) {
	text := string(inline)
	if file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return Tokens{}, fmt.Errorf("ops tokens: %w", err)
		}
		text += "\n" + string(raw)
	}
	t, err := ParseTokens(text)
	if err != nil {
		return Tokens{}, fmt.Errorf("ops tokens: %w", err)
	}
	return t, nil
}

// find returns who bears the token. It compares with every token there is, in
// the same time whichever matches.
func (t Tokens) find(token string) (found bearer, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for _, b := range t.bearers {
		if subtle.ConstantTimeCompare(hash[:], b.hash[:]) == 1 {
			found, ok = b, true
		}
	}
	return found, ok
}

var (
	errNoTokens        = &httpserver.Error{Status: http.StatusForbidden, Code: "ops_api_closed", Detail: "this process was started without tokens (--ops-tokens), so nobody may use its ops API"}
	errUnauthenticated = &httpserver.Error{Status: http.StatusUnauthorized, Code: "unauthenticated", Detail: "send a known token as Authorization: Bearer"}
)

type bearerKey struct{}

// authenticate lets known bearers in and remembers who they are.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(a.tokens.bearers) == 0 {
			httpserver.WriteError(w, r, errNoTokens)
			return
		}
		token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		b, known := a.tokens.find(token)
		if !given || !known {
			a.refusals.log(a.cfg.Logger, r, "", errUnauthenticated.Code)
			w.Header().Set("WWW-Authenticate", `Bearer realm="ops"`)
			httpserver.WriteError(w, r, errUnauthenticated)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), bearerKey{}, b)))
	})
}

// need refuses those whose role is too small.
func (a *API) need(role Role) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if b := bearerOf(r); !b.role.allows(role) {
				a.refusals.log(a.cfg.Logger, r, b.name, "forbidden")
				httpserver.WriteError(w, r, &httpserver.Error{Status: http.StatusForbidden, Code: "forbidden",
					Detail: "this needs the role " + string(role)})
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// refusals log who tried a door that is not his, at most once a second for each
// code: whoever reaches the port must not be able to fill the log with it.
type refusals struct {
	mu      sync.Mutex
	at      map[string]time.Time // of the last line, by code; there are two
	leftOut map[string]int       // since then
}

// log leaves the path out: ids in paths are of customers. The first line after a
// burst tells how many were left out of it.
func (l *refusals) log(logger *slog.Logger, r *http.Request, bearer, code string) {
	if leftOut, due := l.due(code); due {
		logger.WarnContext(r.Context(), "the ops API refused a request", "bearer", bearer, "method", r.Method, "code", code, "left_out", leftOut)
	}
}

func (l *refusals) due(code string) (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.at[code]) < time.Second {
		l.leftOut[code]++
		return 0, false
	}
	leftOut = l.leftOut[code]
	l.at[code], l.leftOut[code] = now, 0
	return leftOut, true
}

func bearerOf(r *http.Request) bearer {
	b, _ := r.Context().Value(bearerKey{}).(bearer)
	return b
}

// ReasonHeader may carry the reason of an action, where the body does not.
const ReasonHeader = "X-Reason"

const maxReason = 500

// actor is who acts and why: the token's name, and the reason that the request
// gives in its body or its header. Nobody can act in another's name.
func actor(r *http.Request, reason string) (messaging.Actor, error) {
	if reason == "" {
		reason = r.Header.Get(ReasonHeader)
	}
	reason = strings.TrimSpace(reason)
	switch {
	case reason == "":
		return messaging.Actor{}, &httpserver.Error{Status: http.StatusBadRequest, Code: "reason_missing",
			Detail: "say why, as reason in the body or in the header X-Reason; it is kept"}
	case len(reason) > maxReason:
		return messaging.Actor{}, &httpserver.Error{Status: http.StatusBadRequest, Code: "reason_too_long",
			Detail: fmt.Sprintf("a reason has at most %d bytes", maxReason)}
	}
	return messaging.Actor{Name: bearerOf(r).name, Reason: reason}, nil
}

// isCode reports whether err is an answer with this code.
func isCode(err error, code string) bool {
	var answer *httpserver.Error
	return errors.As(err, &answer) && answer.Code == code
}
